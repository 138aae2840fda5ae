"""A day in production, shortened: a steady load, and one incident after another."""
