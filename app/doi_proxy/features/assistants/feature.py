"""Tools for assistants, by the Model Context Protocol."""

from __future__ import annotations

from doi_proxy.features.feature import Extra, Feature
from doi_proxy.system.options import Settings


class Assistants(Feature):
    """Only a command uses it."""

    name = "assistants"
    summary = "tools for assistants, by the Model Context Protocol"
    needs = ("lists", "texts", "suggestions", "metadata")
    extra = Extra("assistants", ("mcp",))

    @classmethod
    def is_on(cls, settings: Settings) -> bool:
        """Never for a service."""
        return False
