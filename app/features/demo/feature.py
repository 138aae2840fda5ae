"""`doi-proxy demo`: a stand-in for the upstream, a proxy and an outage, in one terminal."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature

FEATURE: Final = Feature("demo", "a stand-in for the upstream, a proxy and an outage, in one terminal")
