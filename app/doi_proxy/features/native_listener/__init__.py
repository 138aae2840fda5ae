"""The operator of an old client that speaks only the Handle protocol misses it with each request."""
