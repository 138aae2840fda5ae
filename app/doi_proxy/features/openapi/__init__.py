"""The developer of an app misses it when the first call is to be written."""
