"""The table of a SQLite store with the earlier targets of names."""

from __future__ import annotations

from typing import Final

from app.features.help.earlier_targets import EARLIER_TARGETS

TABLES: Final = (EARLIER_TARGETS,)
