"""What is known about the locked packages, advisories and licences: `python -m tools.audit`, or `make audit`."""
