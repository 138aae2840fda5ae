"""Networks of addresses: which clients are in them, and which servers may be reached."""
