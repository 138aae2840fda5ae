"""Values of settings are written in a form that reads back as the same value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.system.options import (
    MASK,
    read_duration,
    read_size,
    read_text_list,
    redact,
    write_duration,
    write_list,
    write_size,
)
from tests.table import table


@given(st.floats(1e-9, 1e9) | st.integers(0, 10**9) | st.integers(0, 10**6).map(lambda days: days * 3_600))
def test_a_duration_reads_back_as_the_same_number_of_seconds(seconds: float) -> None:
    assert read_duration(write_duration(seconds)) == seconds


@given(st.integers(0, 2**60) | st.integers(0, 2**20).map(lambda megabytes: megabytes * 2**20))
def test_a_size_reads_back_as_the_same_number_of_bytes(size: int) -> None:
    assert read_size(write_size(size)) == size


@given(st.lists(st.text(st.characters(exclude_characters=","), min_size=1).map(str.strip).filter(bool)))
def test_a_list_reads_back_as_the_same_items(items: list[str]) -> None:
    assert read_text_list(write_list(items)) == tuple(items) == read_text_list(items)


@table(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.1, "0.1s"),
        (1.8, "1.8s"),
        (60, "1m"),
        (90, "90s"),
        (5_400, "90m"),
        (86_400, "1d"),
        (2592000, "30d"),
    ],
)
def test_a_duration_has_the_largest_unit_that_divides_it(seconds: float, text: str) -> None:
    assert write_duration(seconds) == text


@table(("size", "text"), [(0, "0"), (1_000, "1000"), (65_536, "64K"), (3 * 2**29, "1536M"), (20 * 2**30, "20G")])
def test_a_size_has_the_largest_unit_that_divides_it(size: int, text: str) -> None:
    assert write_size(size) == text


@table("text", ["", "s", "1 2", "1,5s", "1h30m", "--1s", "inf", "nan", "1e3", "٣s", "1" * 41, "1d\n2", None, True, [1]])
def test_what_is_not_a_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="this is not a duration"):
        read_duration(text)


@table("text", ["", "M", "1 M M", "1,5M", "256X", "1e3", "0.3K", "1.5", "1" * 41, None, True])
def test_what_is_not_a_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="this is not a"):
        read_size(text)


# --- Secrets in the URLs of a text are masked, and the rest of the text stays ----------------------------------------


#: What a URL may hold as a user or a password, and "@", which some parsers accept there too.
USERINFO = st.text(alphabet=st.sampled_from("abcXYZ019-._~!$'()*+,:@%"), min_size=1)


@table(
    ("text", "shown"),
    [
        ("redis://user:hidden@127.0.0.1:6379/0", "redis://***@127.0.0.1:6379/0"),
        ("redis://user:hid?key=den@127.0.0.1:6379/0", "redis://***@127.0.0.1:6379/0"),
        ("redis://:hidden@[::1]/0", "redis://***@[::1]/0"),
        ("redis://hidden@127.0.0.1/0", "redis://***@127.0.0.1/0"),
        # All up to the last "@" is the password: so do the libraries read it.
        ("redis://user:hid@den@127.0.0.1/0", "redis://***@127.0.0.1/0"),
        ("http://proxy.example:3128 and a@b.example", "http://proxy.example:3128 and a@b.example"),
        ("valkey://host/0?password=hidden&db=1", "valkey://host/0?password=***&db=1"),
        ("valkey://host/0?db=1&API_Key=hidden#top", "valkey://host/0?db=1&API_Key=***#top"),
        ("valkey://host/0?a=1;token=hidden", "valkey://host/0?a=1;token=***"),
        ("valkey://host/0?p%61ssword=hidden", "valkey://host/0?p%61ssword=***"),
        ("valkey://host/0?username=hidden x=1", "valkey://host/0?username=*** x=1"),
        ("https://example.org/?page=2&sort=year", "https://example.org/?page=2&sort=year"),
        ("password=12 is not in a URL", "password=12 is not in a URL"),
        ("https://otel.example/0123456789abcdef0123/v1?a=1", "https://otel.example/***/v1?a=1"),
        ("https://api.example/b/pk_live-51H8xYbcdEfGhIjKl", "https://api.example/b/***"),
        ("https://doi.example/handle-service/production", "https://doi.example/handle-service/production"),
        ("https://doi.example/10.1000/abc_2024_1234.5678", "https://doi.example/10.1000/abc_2024_1234.5678"),
    ],
)
def test_users_passwords_and_secret_parameters_are_masked(text: str, shown: str) -> None:
    assert redact(text) == shown


@given(user=USERINFO, password=USERINFO)
def test_no_part_of_a_user_or_a_password_is_left(user: str, password: str) -> None:
    text = f"connection to redis://{user}:{password}@store.example/0 failed"
    assert redact(text) == f"connection to redis://{MASK}@store.example/0 failed"


@given(st.text(alphabet=st.sampled_from("ab:/?&;#=@ password%61")) | st.text())
def test_a_masked_text_stays_as_it_is(text: str) -> None:
    assert redact(redact(text)) == redact(text)
