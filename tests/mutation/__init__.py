"""Mutation testing: `python -m tests.mutation`, or `make mutate`."""
