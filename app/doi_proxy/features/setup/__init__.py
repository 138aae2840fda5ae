"""IT staff miss it on the day of the installation, and when the front proxy is wrong."""
