"""An editor misses it when a DOI resolves, and is that of another article."""
