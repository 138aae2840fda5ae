"""Reading queries and forms as the reference does, and never failing over an option."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.resolver.resolution import Action
from doi_proxy.web.request import _read_json
from doi_proxy.web.request_path import (
    UNKNOWN_CLIENT,
    Paths,
    client_of,
    find_route,
    read_api_options,
    read_form_body,
    read_options,
    read_query,
)
from tests.table import table


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


# --- The network that counts as one client ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.7", "192.0.2.0/24"),
        ("192.0.2.250", "192.0.2.0/24"),
        ("::ffff:192.0.2.7", "192.0.2.0/24"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", UNKNOWN_CLIENT),
        ("unix:", UNKNOWN_CLIENT),
        ("192.0.2.7, 198.51.100.1", UNKNOWN_CLIENT),
    ],
)
def test_an_address_belongs_to_the_network_of_its_prefix(address: str, client: str) -> None:
    assert client_of(address) == client


def test_the_access_log_has_a_shorter_prefix() -> None:
    assert client_of("2001:db8:1:2::5", 48) == "2001:db8:1::/48"


# --- What kind of path a request is for ------------------------------------------------------------------------------


PATHS = Paths(
    operations=frozenset({b"/healthz", b"/docs", b"/admin/x"}),
    below=(b"/static/", b"/.well-known/doi-proxy/probe/"),
    gated_below=(b"/admin/",),
    own_api={b"/api/parse": "parse"},
)


@table(
    ("method", "path", "route"),
    [
        ("GET", b"/10.1000/182", "resolve"),
        ("GET", b"/10.", "resolve"),
        ("GET", b"/doi:10.1000/182", "resolve"),
        ("GET", b"//", "resolve"),
        ("GET", b"/apis/10.1000/182", "resolve"),
        ("GET", b"/doiRA", "resolve"),
        ("GET", b"/ra", "resolve"),
        ("GET", b"/openurl/", "resolve"),
        ("GET", b"/healthz/", "resolve"),
        ("GET", b"/api/handles/10.1000/182", "api"),
        ("GET", b"/API/x", "api"),
        ("DELETE", b"/api", "api"),
        ("GET", b"/doiRA/10.1000/182", "which_ra"),
        ("GET", b"/RA/10.1000", "which_ra"),
        ("GET", b"/openurl", "openurl"),
        ("GET", b"/", "home"),
        ("GET", b"", "home"),
        ("OPTIONS", b"/", "home"),
        ("POST", b"/", "resolve"),
        ("POST", b"/healthz", "operation"),
        ("HEAD", b"/docs", "operation"),
        ("OPTIONS", b"/healthz", "resolve"),
        ("GET", b"/static/style.css", "operation"),
        ("GET", b"/static/nothing", "operation"),
        ("GET", b"/static/\xff", "resolve"),
        ("GET", b"/static", "resolve"),
        ("GET", b"/.well-known/doi-proxy/probe/x//y%2Fz", "operation"),
        ("GET", b"/.well-known/doi-proxy/probe/\xff", "resolve"),
        ("GET", b"/.well-known/x", "resolve"),
        ("OPTIONS", b"/admin/x", "operation"),
        ("GET", b"/admin/\xff", "operation"),
        ("GET", b"/admin", "resolve"),
        ("GET", b"/admin/../10.1000/182", "resolve"),
        ("POST", b"/admin/x/..", "resolve"),
        ("GET", b"/admin/./x", "resolve"),
        ("GET", b"/admin/%2E%2e%2f10.1000/182", "resolve"),
        ("GET", b"/admin/x%5C..%5cy", "resolve"),
        ("GET", b"/admin/..;/x", "resolve"),
        ("GET", b"/admin/..x/...", "operation"),
        ("GET", b"/admin/entries/10.1000/a..b", "operation"),
        ("GET", b"/.well-known/doi-proxy/probe/a/../b", "operation"),
        ("GET", b"/api/parse", "parse"),
    ],
)
def test_a_path_is_of_one_kind(method: str, path: bytes, route: str) -> None:
    assert find_route(method, path, PATHS) == route


def test_a_path_that_is_typed_into_the_form_is_not_one_of_operation() -> None:
    assert find_route("POST", b"/healthz") == "resolve"
    assert find_route("POST", b"/static/style.css") == "resolve"
