"""The editor of a library's web pages misses it when readers do not see whose resolver it is."""
