"""Attacks on a running proxy: `python -m bench.attacks [--checkout DIR] [PART …]` prints what each of them does."""
