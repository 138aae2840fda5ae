"""Reading queries and forms as the reference does, and never failing over an option."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.errors import InvalidParameter
from doi_proxy.resolver.resolution import DEFAULT_OPTIONS, Action
from doi_proxy.web.request import _read_json
from doi_proxy.web.request_path import read_api_options, read_form_body, read_options, read_query


@pytest.mark.parametrize(
    ("query", "pairs"),
    [
        (b"", ()),
        (b"noredirect", (("noredirect", ""),)),
        (b"a=1&b=2;c=3", (("a", "1"), ("b", "2"), ("c", "3"))),
        (b"urlappend=%3Fa%3Db", (("urlappend", "?a=b"),)),
        (b"a=b=c", (("a", "b=c"),)),
        (b"a=x+y", (("a", "x+y"),)),
        (b"a=%zz%4", (("a", "%zz%4"),)),
        (b"a=%ff", (("a", "\ufffd"),)),
        (b"&&;", ()),
    ],
)
def test_a_query_is_separated_by_ampersand_and_semicolon_and_decoded_once(query: bytes, pairs: object) -> None:
    assert read_query(query).pairs == pairs


def test_a_form_is_separated_by_ampersand_and_a_plus_is_a_space() -> None:
    assert read_form_body(b"hdl=+doi:10.1000/182+;x&noredirect=").pairs == (
        ("hdl", " doi:10.1000/182 ;x"),
        ("noredirect", ""),
    )


def test_parameters_after_the_first_200_are_not_looked_at() -> None:
    assert len(read_query(b"&".join(b"type=x" for _ in range(1000))).pairs) == 200


def test_without_parameters_the_plain_question_is_asked() -> None:
    assert read_options(read_query(b"")) is DEFAULT_OPTIONS


@pytest.mark.parametrize(
    ("query", "action"),
    [
        (b"noredirect", Action.SHOW_VALUES),
        (b"noredirect=false", Action.SHOW_VALUES),
        (b"NOREDIRECT", Action.REDIRECT),
        (b"action=showvalues", Action.SHOW_VALUES),
        (b"action=ShowUrls", Action.SHOW_URLS),
        (b"action=api", Action.API),
        (b"action=toolbar", Action.REDIRECT),
        (b"action=redirect&noredirect", Action.REDIRECT),
    ],
)
def test_actions_and_their_presence(query: bytes, action: Action) -> None:
    assert read_options(read_query(query)).action is action


def test_on_pages_flags_count_by_presence_and_a_bad_index_is_ignored() -> None:
    options = read_options(
        read_query(b"auth=false&cert=no&index=1&index=abc&index=-2&type=URL&type=email&index=%C2%B2")
    )
    assert (options.authoritative, options.certified, options.indexes, options.types) == (
        True,
        True,
        (1, -2),
        ("URL", "email"),
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (b"auth", True),
        (b"auth=", True),
        (b"auth=yes", True),
        (b"auth=TRUE", True),
        (b"auth=false", False),
        (b"auth=1", False),
        (b"x", False),
    ],
)
def test_in_the_api_flags_are_read(query: bytes, expected: bool) -> None:
    assert read_api_options(read_query(query)).authoritative is expected


def test_in_the_api_a_bad_index_is_an_error_that_shows_it() -> None:
    with pytest.raises(InvalidParameter, match="'abc'"):
        read_api_options(read_query(b"index=abc"))


@given(st.binary(max_size=300))
def test_no_query_raises_anything_on_a_page(query: bytes) -> None:
    read_options(read_query(query))
    read_options(read_form_body(query))


def test_the_values_of_a_json_body_are_read_as_those_of_a_form() -> None:
    body = b'{"auth": true, "pretty": false, "noredirect": null, "index": [1, 2]}'
    assert _read_json(body).pairs == (
        ("auth", "true"), ("pretty", "false"), ("noredirect", ""), ("index", "1"), ("index", "2"),
    )  # fmt: skip
    assert _read_json(b"{}").pairs == ()
