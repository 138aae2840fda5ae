"""The proof of an answer: what a handle server signed, and the keys up to the root."""
