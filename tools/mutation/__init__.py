"""Mutation testing: `python -m tools.mutation`, or `make mutants`."""
