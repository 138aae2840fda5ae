"""The formulas of popularity, beside sums and simulations that are done the long way."""

from __future__ import annotations

import random

import pytest

from bench.popularity import Popularity, fit_exponent, group_shares, lru_share
from bench.scale import LOGGED, LOGGED_NAMES
from bench.simulation import SimulatedProxy, Sizes, simulate
from bench.tests.simulated import ANSWER, entry_size

pytestmark = pytest.mark.repository

NAMES = 20_000


def weights(exponent: float) -> list[float]:
    each = [rank**-exponent for rank in range(1, NAMES + 1)]
    total = sum(each)
    return [one / total for one in each]


@pytest.mark.parametrize("exponent", [0.0, 0.6, 0.85, 1.0, 1.2])
def test_groups_have_the_shares_of_their_names(exponent: float) -> None:
    each = weights(exponent)
    expected = [sum(each[start : start + 4_000]) for start in range(0, NAMES, 4_000)]
    assert group_shares(Popularity(NAMES, exponent), 5) == pytest.approx(expected, rel=1e-7)


def test_a_group_of_one_name_has_the_share_of_that_name() -> None:
    assert group_shares(Popularity(3, 1.0), 3) == pytest.approx([6 / 11, 3 / 11, 2 / 11])


def test_the_expected_number_of_distinct_names_is_the_sum_of_their_chances() -> None:
    expected = sum(1 - (1 - one) ** 30_000 for one in weights(0.85))
    assert Popularity(NAMES, 0.85).distinct(30_000) == pytest.approx(expected, rel=1e-3)


def test_few_requests_name_as_many_names_and_many_name_all() -> None:
    law = Popularity(NAMES, 0.85)
    assert law.distinct(1) == pytest.approx(1, rel=0.01)
    assert law.distinct(1e9) == pytest.approx(NAMES)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_the_formula_of_lru_agrees_with_a_simulation(share: float) -> None:
    law = Popularity(NAMES, 0.85)
    entries = int(share * NAMES)
    keys = [f"10.5555/{number:06d}" for number in range(NAMES)]
    drawn = random.Random(3).choices(keys, weights(0.85), k=120_000)
    proxy = SimulatedProxy(Sizes(entries * entry_size(keys[0]), 0, 1e9, 0), ANSWER)
    simulate(proxy, [(key, 0.0) for key in drawn[:60_000]])
    found = simulate(proxy, [(key, 0.0) for key in drawn[60_000:]])
    assert found.from_memory == pytest.approx(lru_share(law, entries), abs=0.01)


def test_a_cache_of_all_names_answers_every_request() -> None:
    assert lru_share(Popularity(NAMES, 0.85), NAMES) == 1.0


def test_the_formula_of_ttl_is_a_share_of_hits_for_each_name() -> None:
    expected = sum(one * (50_000 * one) / (1 + 50_000 * one) for one in weights(0.85))
    assert Popularity(NAMES, 0.85).ttl_share(50_000) == pytest.approx(expected, rel=1e-3)


def test_the_exponent_is_found_from_the_number_of_distinct_names() -> None:
    distinct = round(Popularity(NAMES, 0.73).distinct(40_000))
    assert fit_exponent(NAMES, 40_000, distinct) == pytest.approx(0.73, abs=0.001)


def test_the_default_exponent_is_among_those_of_the_public_log() -> None:
    fitted = [fit_exponent(LOGGED_NAMES, requests, distinct) for _, requests, distinct in LOGGED]
    assert min(fitted) < 0.85 < max(fitted)
    assert max(fitted) - min(fitted) < 0.1
