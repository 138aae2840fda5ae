"""The application as any ASGI server would run it."""

from doi_proxy.main import create_from_environment

__all__ = ["create_from_environment"]
