"""What is known about the locked packages, advisories and licences: `python -m tests.audit`, or `make audit`."""
