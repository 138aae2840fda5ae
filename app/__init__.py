"""A self-hosted DOI resolver proxy for institutions."""

__version__ = "0.2.0"
