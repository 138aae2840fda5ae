"""DOI names: what one is, its URI and URL forms, and where names are in a text. No I/O, the standard library alone."""
