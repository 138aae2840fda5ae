"""What the machine and its libraries do for the program, with limits.

Files, hosts, gzip data, TOML, signals, a line on a terminal, and secrets that are kept out of what is shown.
"""
