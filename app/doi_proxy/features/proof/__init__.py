"""An auditor misses it when an answer of a year ago must be proven without trusting this proxy."""
