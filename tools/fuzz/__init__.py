"""Random search for inputs that break a promise: `python -m tools.fuzz`, or `make fuzz`."""
