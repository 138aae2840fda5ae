"""Mutation testing: `python -m tests.mutation`, or `make mutants`."""
