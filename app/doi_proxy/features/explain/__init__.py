"""IT staff miss it when one reader is led to EZproxy and another is not, and both ask why."""
