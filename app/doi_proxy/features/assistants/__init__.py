"""A researcher misses it when an assistant is to check the DOIs of its own answer."""
