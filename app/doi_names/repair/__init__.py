"""Repairs of text that does not contain the name that its writer meant.

Each function undoes one copying error, or returns the text unchanged. Its docstring begins with an example.
"""
