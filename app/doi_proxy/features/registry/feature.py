"""The data files of registration agencies, imported into a SQLite store."""

from __future__ import annotations

from typing import Final

from doi_proxy.features.feature import Extra, Feature

FEATURE: Final = Feature(
    "registry",
    "the data files of registration agencies, imported into a SQLite store",
    needs=("sqlite",),
    # The import of such a file needs it. Tables of names and URLs, and records of a store, are read without it.
    extra=Extra("registry", ("isal",)),
    is_on=lambda settings: False,
)
