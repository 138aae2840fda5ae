"""An institution misses it when its handle server dies, and its names must go on resolving."""
