"""Valkey and Redis stores, for proxies of several machines."""

from __future__ import annotations

from typing import Final

from doi_proxy.features.feature import Feature

FEATURE: Final = Feature("valkey", "Valkey and Redis stores, for proxies of several machines")
