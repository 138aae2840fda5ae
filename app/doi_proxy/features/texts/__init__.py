"""The developer of an app misses it when people paste what is almost a DOI."""
