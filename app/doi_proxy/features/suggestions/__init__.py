"""A reader misses it when a DOI was copied with a typing error."""
