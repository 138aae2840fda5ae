"""A program that reads long lists over a slow line misses it with each answer."""
