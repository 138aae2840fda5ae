"""Tools for assistants, by the Model Context Protocol."""

from __future__ import annotations

from typing import Final

from doi_proxy.features.feature import Extra, Feature

FEATURE: Final = Feature(
    "assistants",
    "tools for assistants, by the Model Context Protocol",
    needs=("lists", "texts", "suggestions", "metadata"),
    extra=Extra("assistants", ("mcp",)),
    is_on=lambda settings: False,
)
