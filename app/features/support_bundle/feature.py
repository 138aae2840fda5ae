"""`doi-proxy support-bundle`: what a developer needs to find a fault, without readers and secrets."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature

FEATURE: Final = Feature(
    "support_bundle",
    "what a developer needs to find a fault, without readers and secrets",
)
