"""An institution with handle servers misses it when the public HTTP API is down and its own servers answer."""
