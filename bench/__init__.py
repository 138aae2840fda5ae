"""What doi-proxy costs and how it compares, measured on the machine at hand: `python -m bench`."""
