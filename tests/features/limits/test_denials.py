"""Denials for a time."""

from __future__ import annotations

import pytest

from doi_proxy.assembly.core import new_context, open_core
from doi_proxy.assembly.features import Features
from doi_proxy.assembly.lifecycle import Lifecycle
from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import ClientDenied
from doi_proxy.features.limits.feature import Limits
from doi_proxy.features.limits.limits import Denials
from tests.clock import Clock


def test_the_clock_of_the_machine_neither_prolongs_nor_ends_a_denial() -> None:
    settings = Settings(store_url="memory:", upstream_contact="mailto:a@b.org")
    clock = Clock()
    features = Features(new_context(settings, Lifecycle(settings), clock))
    admission = features.open(open_core(settings, features, features.observe())).stages.admission
    limits = features[Limits]
    ends = limits.deny("192.0.2.0/24", 60)
    assert ends == clock() + 60
    for step in (-86_400, 2 * 86_400):
        clock.advance(step)
        assert limits.read_denials()["192.0.2.0/24"] == pytest.approx(clock() + 60, abs=30)
        with pytest.raises(ClientDenied):
            admission.admit("192.0.2.1")


def test_a_denial_ends_by_the_timer() -> None:
    timer, applied = Clock(), list[list[str]]()
    denials = Denials(timer, lambda networks: applied.append(sorted(networks)))
    denials.deny("192.0.2.0/24", 60)
    timer.advance(20)
    assert denials.list() == {"192.0.2.0/24": 40}
    timer.advance(40)
    denials.refresh()
    assert denials.list() == {}
    assert applied == [["192.0.2.0/24"], []]
