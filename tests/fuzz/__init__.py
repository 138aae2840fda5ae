"""Fuzzing with atheris: `python -m tests.fuzz`, or `make fuzz`."""
