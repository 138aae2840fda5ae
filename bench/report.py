"""The report: Markdown with the results of one run, and whether they reach the goals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.findings import Claim, Section, Table


def write_report(date: str, machine: Sequence[tuple[str, str]], sections: Sequence[Section]) -> str:
    """The report as Markdown."""
    lines = ["# Results", "", f"One run of `make bench` on {date}. README.md says what is measured and how to read it."]
    lines += ["", *(f"- {label}: {value}" for label, value in machine)]
    claims = [claim for section in sections for claim in section.claims]
    if claims:
        lines += ["", "## In short", "", *_table(_claims_table(claims))]
    for section in sections:
        lines += ["", *_section(section)]
    return "\n".join(lines) + "\n"


def write_section(section: Section) -> str:
    """One section, with its claims, for a terminal."""
    claims = ["", *_table(_claims_table(section.claims))] if section.claims else []
    return "\n".join([*_section(section), *claims]) + "\n"


def _section(section: Section) -> list[str]:
    lines = [f"## {section.title}", "", section.method]
    for table in section.tables:
        if table.caption:
            lines += ["", table.caption]
        lines += ["", *_table(table)]
    if section.not_measured:
        lines += ["", *(f"- {reason}" for reason in section.not_measured)]
    return lines


def _claims_table(claims: Iterable[Claim]) -> Table:
    return Table(("Goal", "measured", "wanted", "reached"), tuple(_claim_row(claim) for claim in claims))


def _claim_row(claim: Claim) -> tuple[str, ...]:
    unit = f" {claim.unit}" if claim.unit not in ("", "x") else claim.unit
    spread = "" if claim.spread is None else f" ({number(claim.spread[0])} to {number(claim.spread[1])})"
    relation = {">=": "at least", "<=": "at most"}[claim.relation]
    wanted = f"{relation} {number(claim.bound)}{unit}"
    return (claim.what, f"{number(claim.measured)}{unit}{spread}", wanted, "yes" if claim.holds else "**no**")


def number(value: float) -> str:
    """A number with its significant digits."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"


def _table(table: Table) -> list[str]:
    rule = ["---", *(["---:"] * (len(table.columns) - 1))]
    return ["| " + " | ".join(cells) + " |" for cells in (table.columns, rule, *table.rows)]
