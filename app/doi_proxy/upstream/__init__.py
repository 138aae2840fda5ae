"""Upstream queries: where a name is queried, how often, and what happens when a query fails."""
