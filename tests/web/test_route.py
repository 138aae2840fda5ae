"""What kind of path a request is for."""

from __future__ import annotations

from doi_proxy.web.request_path import Paths, api_part, find_route, names_part
from tests.table import table

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


def test_the_parts_of_a_path_stay_raw() -> None:
    assert api_part(b"/API/handles/10.1000%2F182") == b"handles/10.1000%2F182"
    assert names_part(b"/doiRA/10.1000%2F1,10.1000/2") == b"10.1000%2F1,10.1000/2"
    assert names_part(b"/ra/") == b""
