"""How a store keeps entries: their bytes, their format, and the URL that names the store."""
