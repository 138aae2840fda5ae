"""Attacks on a running proxy: `python -m bench.attacks [--checkout DIR] [PART …]` prints the effect of each."""
