"""A self-hosted DOI resolver proxy for institutions."""
