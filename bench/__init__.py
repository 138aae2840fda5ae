"""Measures what doi-proxy costs, and compares it with alternatives, on this machine: `python -m bench`."""
