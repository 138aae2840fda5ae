"""Title, first author and year of a work, by content negotiation."""
