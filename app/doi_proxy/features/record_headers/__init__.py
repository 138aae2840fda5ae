"""A registrant whose record has 10320/headers values misses it with each redirect."""
