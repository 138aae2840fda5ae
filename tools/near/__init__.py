"""The tests near a change: `python -m tools.near`, or `make near`."""
