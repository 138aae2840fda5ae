"""The librarian for electronic resources misses it every day: readers off campus meet a paywall."""
