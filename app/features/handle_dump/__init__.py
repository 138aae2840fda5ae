"""The dump of a handle server, as local records."""
