"""Random search for inputs that break a promise: `python -m tests.fuzz`, or `make fuzz`."""
