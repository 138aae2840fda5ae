"""A reader misses it when the landing page behind a DOI is dead."""
