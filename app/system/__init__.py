"""What the system and its libraries do for the program, with limits: open files, look up hosts, inflate gzip data."""
