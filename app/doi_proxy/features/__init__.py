"""The features, in the order of their stages: the first is the outermost. Each has a folder with its feature.py.

The first line of a folder's __init__.py says who would miss the feature, and when.
"""

NAMES = (
    "branding",
    "library",
    "privacy",
    "tracing",
    "limits",
    "country",
    "record_headers",
    "compression",
    "metrics",
    "local_records",
    "texts",
    "suggestions",
    "native",
    "metadata",
    "native_listener",
    "sqlite",
    "valkey",
    "help",
    "registry",
    "handle_dump",
    "bundles",
    "lists",
    "status",
    "admin",
    "explain",
    "openapi",
    "setup",
    "assistants",
)
