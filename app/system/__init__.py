"""What the operating system does for the program: opening files, and looking up hosts."""
