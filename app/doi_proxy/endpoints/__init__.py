"""What the JSON endpoints and pages of features have in common: FastAPI, errors, headers."""
