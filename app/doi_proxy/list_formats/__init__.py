"""Lists of names: their formats, what reads the names of a list or a text, and what writes rows."""
