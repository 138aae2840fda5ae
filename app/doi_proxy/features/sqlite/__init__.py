"""An operator misses it after a restart: the cache would be empty, and the upstream would get every query again."""
