"""The problems of a route in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from doi_proxy.web.media_types import PROBLEM


def problem_responses(texts: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """The problems of a route by their status, for the OpenAPI document."""
    return {status: {"description": text, "content": {PROBLEM: {}}} for status, text in texts.items()}
