"""A student misses it on the evening before a thesis is handed in."""
