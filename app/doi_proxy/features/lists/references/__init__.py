"""`/references`: a page that checks the DOIs of a bibliography. A student misses it before a thesis is handed in."""
