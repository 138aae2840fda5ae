"""IT staff miss it when a wrong target is in the cache, and must go from every proxy at once."""
