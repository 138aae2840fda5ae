"""TTLs: relative seconds or an absolute time (RFC 3651, section 3.1)."""

from __future__ import annotations

import pytest

from app.errors import InvalidAnswer
from app.handle.ttl import DEFAULT_TTL, Ttl, earliest_end, read_ttl

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (86400, Ttl(86400)),
        (0, Ttl(0)),
        (-1, Ttl(-1)),
        (12.5, Ttl(12.5)),
        ("2030-01-01T00:00:00Z", Ttl(1893456000, absolute=True)),
        ("2030-01-01T02:00:00+02:00", Ttl(1893456000, absolute=True)),
        ("2030-01-01T00:00:00", Ttl(1893456000, absolute=True)),
    ],
)
def test_a_ttl_is_seconds_or_an_iso_time_in_utc(given: int | float | str, expected: Ttl) -> None:
    assert read_ttl(given) == expected


@pytest.mark.usefixtures("western_machine")
def test_a_time_without_a_zone_is_utc_wherever_the_machine_is() -> None:
    assert read_ttl("2030-01-01T00:00:00") == Ttl(1893456000, absolute=True)


@pytest.mark.parametrize("given", ["", "soon", "86400s", "2030-13-01T00:00:00Z", float("nan")])
def test_any_other_ttl_is_an_invalid_answer(given: float | str) -> None:
    with pytest.raises(InvalidAnswer):
        read_ttl(given)


def test_a_ttl_of_millions_of_years_is_bounded() -> None:
    assert read_ttl(10**40).seconds == 100 * 365 * 86400


@pytest.mark.parametrize("digits", [309, 400, 4_000])
def test_a_ttl_of_hundreds_of_digits_is_bounded(digits: int) -> None:
    century = 100 * 365 * 86400.0
    assert (read_ttl(10**digits), read_ttl(-(10**digits))) == (Ttl(century), Ttl(-century))


def test_a_record_ends_when_its_first_value_ends() -> None:
    assert earliest_end([Ttl(7200), Ttl(30), Ttl(86400)], NOW) == NOW + 30


def test_an_absolute_time_is_compared_as_a_time() -> None:
    assert earliest_end([Ttl(86400), Ttl(NOW + 10, absolute=True)], NOW) == NOW + 10


def test_a_record_without_values_has_the_default_of_24_hours() -> None:
    assert earliest_end([], NOW) == NOW + 86400
    assert Ttl(86400) == DEFAULT_TTL
