"""The data protection officer misses it when a reader asks what is stored."""
