"""Secrets in the URLs of a text are masked, and the rest of the text stays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.system.options import MASK, redact
from tests.table import table

#: What a URL may hold as a user or a password, and "@", which some parsers accept there too.
USERINFO = st.text(alphabet=st.sampled_from("abcXYZ019-._~!$'()*+,:@%"), min_size=1)


@table(
    ("text", "shown"),
    [
        ("redis://user:hidden@127.0.0.1:6379/0", "redis://***@127.0.0.1:6379/0"),
        ("redis://user:hid?key=den@127.0.0.1:6379/0", "redis://***@127.0.0.1:6379/0"),
        ("redis://:hidden@[::1]/0", "redis://***@[::1]/0"),
        ("http://proxy.example:3128 and a@b.example", "http://proxy.example:3128 and a@b.example"),
        ("valkey://host/0?password=hidden&db=1", "valkey://host/0?password=***&db=1"),
        ("valkey://host/0?db=1&API_Key=hidden#top", "valkey://host/0?db=1&API_Key=***#top"),
        ("valkey://host/0?a=1;token=hidden", "valkey://host/0?a=1;token=***"),
        ("valkey://host/0?p%61ssword=hidden", "valkey://host/0?p%61ssword=***"),
        ("valkey://host/0?username=hidden x=1", "valkey://host/0?username=*** x=1"),
        ("https://example.org/?page=2&sort=year", "https://example.org/?page=2&sort=year"),
        ("password=12 is not in a URL", "password=12 is not in a URL"),
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
