"""IT staff miss it on the Sunday on which a crawler takes all queries of the institution."""
