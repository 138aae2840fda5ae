"""Every seed of the fuzzing corpus, as ordinary tests; and a corpus for every target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.table import table
from tools.fuzz.__main__ import SERVICE_NAMES, TARGET_NAMES
from tools.fuzz.searches import property_tests
from tools.fuzz.services import SERVICES, end_services
from tools.fuzz.targets import TARGETS

_CORPUS = Path(__file__).with_name("corpus")
_SEEDS = sorted(_CORPUS.glob("*/*"))


@pytest.fixture(scope="module", autouse=True)
def services() -> Iterator[None]:
    """The services of the targets end with the tests of this file."""
    yield
    end_services()


def test_each_target_has_seeds() -> None:
    assert {seed.parent.name for seed in _SEEDS} == {*TARGETS, *SERVICES} == {*TARGET_NAMES, *SERVICE_NAMES}


@pytest.mark.repository
def test_property_tests_are_found_by_their_marker() -> None:
    found = property_tests(Path(__file__).parents[2] / "tests/networks")
    assert "tests/networks/test_network_list.py" in found
    assert "tests/networks/test_allowed_addresses.py" not in found


@table("seed", _SEEDS, ids=lambda seed: f"{seed.parent.name}-{seed.name}")
def test_a_seed_holds(seed: Path) -> None:
    {**TARGETS, **SERVICES}[seed.parent.name](seed.read_bytes())
