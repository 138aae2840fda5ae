"""The verdicts of the day on what an operator read about an incident."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.day.incidents import SQLITE, Incident
from bench.day.judgement import judge_incident
from bench.day.watch import Event, Line

pytestmark = pytest.mark.repository

_INCIDENT = next(incident for incident in SQLITE if incident.name == "upstream resets")
_OF_STORE = next(incident for incident in SQLITE if incident.name == "store locked")
_DOWN = Line(0, "upstream 1 (127.0.0.1) is down: upstream-unreachable: no connection; wait")
_UP = Line(0, "upstream 1 (127.0.0.1) is up again after 20 s")
_EVENT = Event(0, "outage", "upstream-unreachable", "", 5.0, has_ended=True)
_LOCKED = Line(0, "The store is down: put failed; database is locked")
_OPEN = Line(0, "The store is up again after 5 seconds.")
_STORE_EVENT = Event(0, "store", "store-locked", "", 5.0, has_ended=True)


@pytest.mark.parametrize(
    ("incident", "lines", "events", "is_right"),
    [
        (_INCIDENT, [_DOWN, _UP], [_EVENT], True),
        (_INCIDENT, [], [_EVENT], False),
        (_INCIDENT, [_DOWN], [_EVENT], False),
        (_INCIDENT, [_DOWN, _DOWN, _UP, _UP], [_EVENT], False),
        (_INCIDENT, [_DOWN, Line(0, "another line"), _UP], [_EVENT], False),
        (_INCIDENT, [_DOWN, _UP], [], False),
        (_INCIDENT, [_DOWN, _UP], [_STORE_EVENT], False),
        (_INCIDENT, [_DOWN, _UP], [Event(0, "outage", "upstream-unreachable", "", 5.0, has_ended=False)], False),
        (_OF_STORE, [_LOCKED, _OPEN], [_STORE_EVENT], True),
        (_OF_STORE, [_LOCKED], [_STORE_EVENT], False),
        (replace(_INCIDENT, can_pass_unnoticed=True), [], [], True),
        (replace(_INCIDENT, can_pass_unnoticed=True), [_DOWN], [_EVENT], False),
        (Incident("none", _INCIDENT.lasts), [], [], True),
        (Incident("none", _INCIDENT.lasts), [_UP], [], False),
    ],
)
def test_an_incident_is_right_if_its_cause_begins_and_ends_once(
    incident: Incident, lines: list[Line], events: list[Event], is_right: bool
) -> None:
    assert judge_incident(incident, lines, events, machines=1).is_right is is_right
