"""How a store keeps entries: their bytes, format and file; and the operator's files, with their last good text."""
