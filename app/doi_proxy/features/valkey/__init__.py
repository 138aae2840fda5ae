"""An institution with two hosts misses it when the second one asks the upstream again for every name."""
