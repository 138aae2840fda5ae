"""What a run of all parts has measured so far. A run that was stopped can be continued."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from bench.findings import Section

#: It differs whenever a run is continued.
_LOAD: Final = "load before the run"


@dataclass(frozen=True, slots=True)
class Progress:
    """The day and the facts of a run, and the sections of each part that it has measured."""

    date: str
    facts: tuple[tuple[str, str], ...]
    parts: dict[str, tuple[Section, ...]]

    def keep(self, file: Path) -> None:
        """Write it to a file, which is whole at any moment."""
        new = file.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(self))
        new.replace(file)


def continue_run(file: Path, facts: tuple[tuple[str, str], ...]) -> Progress:
    """The run in the file. Raises SystemExit if there is none, or if it was another program, machine or list."""
    if not file.exists():
        raise SystemExit(f"bench: {file} does not exist, so no run can be continued; start one without --continue")
    kept = msgspec.json.decode(file.read_bytes(), type=Progress)
    for label, value in facts:
        if label != _LOAD and (before := dict(kept.facts).get(label)) != value:
            raise SystemExit(
                f"bench: the run in {file} had another {label}: {before!r}, now {value!r}; "
                "start a new run without --continue"
            )
    return kept
