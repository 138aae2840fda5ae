"""The manager of a repository misses it when 50,000 DOIs must be checked before an audit."""
