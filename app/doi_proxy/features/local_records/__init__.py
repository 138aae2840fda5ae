"""A repository misses it when a thesis has a DOI in print before the agency registers it."""
