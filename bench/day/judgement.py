"""Whether the log and the events of /status say what an incident was, once, and that it ended."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.day.incidents import Incident
from bench.day.watch import Event, Line

#: In the line that may precede an outage: some names fail before the upstream is in doubt.
_SUSPECTS: Final = "names without a usable answer: "


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an operator read about an incident."""

    begins: int
    ends: int
    #: Lines that say neither.
    others: tuple[str, ...]
    #: The events of other words than the expected ones, or that did not end.
    wrong_events: tuple[str, ...]
    events: int
    is_right: bool


def judge_incident(incident: Incident, lines: Sequence[Line], events: Sequence[Event], *, machines: int) -> Judgement:
    """Compare the lines and events of an incident with what it says it expects."""
    begins = [line for line in lines if incident.begins and re.search(incident.begins, line.text)]
    ends = [line for line in lines if incident.ends and re.search(incident.ends, line.text)]
    others = [line.text for line in lines if not _is_expected(incident, line)]
    expected = [event for event in events if incident.event and str(event).startswith(incident.event)]
    wrong = [str(event) for event in events if event not in expected or not event.has_ended]
    is_right = (
        (bool(incident.begins) and not incident.can_pass_unnoticed) <= len(begins) <= machines
        and len(ends) == (len(begins) if incident.ends else 0)
        and (bool(incident.event) and not incident.can_pass_unnoticed) <= len(expected) <= machines
        and not others
        and not wrong
    )
    return Judgement(len(begins), len(ends), tuple(others), tuple(wrong), len(expected), is_right)


def _is_expected(incident: Incident, line: Line) -> bool:
    patterns = (incident.begins, incident.ends, _SUSPECTS)
    return any(pattern and re.search(pattern, line.text) for pattern in patterns)
