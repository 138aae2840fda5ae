"""Denials for a time: shared by the workers, which tell each other of them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from doi_proxy.assembly.core import new_context, open_core
from doi_proxy.assembly.features import Features
from doi_proxy.assembly.lifecycle import Lifecycle
from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import ClientDenied
from doi_proxy.features.limits.denials import Denials
from doi_proxy.features.limits.feature import Limits
from doi_proxy.sharing.memory import SharedMemory
from tests.clock import Clock


def test_a_change_in_the_same_tick_of_the_clock_is_followed(tmp_path: Path) -> None:
    applied: list[list[str]] = []

    def apply(networks: Collection[str]) -> None:
        applied.append(sorted(networks))

    memory, clock = SharedMemory(tmp_path / "lock"), Clock()
    ours, theirs = Denials(memory, clock, lambda _: None), Denials(memory, clock, apply)
    for number in range(50):
        ours.deny(f"192.0.{number}.0/24", 60)
        theirs.refresh()
    assert [len(networks) for networks in applied] == list(range(1, 51))


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


def test_a_denial_ends_by_the_timer(tmp_path: Path) -> None:
    timer, memory = Clock(), SharedMemory(tmp_path / "lock")
    ours, theirs = (Denials(memory, timer, lambda _: None) for _ in range(2))
    ours.deny("192.0.2.0/24", 60)
    timer.advance(20)
    assert theirs.list() == {"192.0.2.0/24": 40}
    timer.advance(40)
    assert ours.list() == theirs.list() == {}


def test_a_denial_is_announced_and_followed_where_another_worker_announces_it(
    tmp_path: Path,
) -> None:
    settings = Settings(workers=2, store_url=f"sqlite:///{tmp_path}/store.sqlite3", upstream_contact="mailto:a@b.org")
    lifecycles = [Lifecycle(settings) for _ in range(2)]
    lifecycles[1].memories = lifecycles[0].memories
    workers = [Features(new_context(settings, lifecycle)) for lifecycle in lifecycles]
    opened = [features.open(open_core(settings, features, features.observe())) for features in workers]
    lifecycles[0].send_change = lifecycles[1].follow
    workers[0][Limits].deny("192.0.2.0/24", 60)
    for parts in opened:
        with pytest.raises(ClientDenied):
            parts.stages.admission.admit("192.0.2.1")
