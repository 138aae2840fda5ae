"""The results of a measurement for the report: tables, claims, and what could not be measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text. The first column is left-aligned, all others right-aligned."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A goal, and whether the measurement reached it."""

    what: str
    measured: float
    relation: Literal[">=", "<="]
    bound: float
    unit: str = ""
    spread: tuple[float, float] | None = None

    @property
    def holds(self) -> bool:
        """Whether the measured value is on the right side of the bound."""
        return self.measured >= self.bound if self.relation == ">=" else self.measured <= self.bound


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the report."""

    title: str
    method: str
    tables: tuple[Table, ...] = ()
    claims: tuple[Claim, ...] = ()
    not_measured: tuple[str, ...] = field(default=())
