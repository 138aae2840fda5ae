"""A registrant whose 10320/loc record chooses by country misses it when a reader of that country clicks."""
