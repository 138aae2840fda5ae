"""How much of what is scarce a client gets: rates as token buckets, places as shares. Pure."""
