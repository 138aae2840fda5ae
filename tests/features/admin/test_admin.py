"""The admin API: what each action does, and the table of attacks of docs/security.md."""

from __future__ import annotations

import ast
import json
import logging
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

import doi_proxy.features.admin.gate
from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.entry import FOREVER, Entry
from doi_proxy.errors import RateExceeded
from doi_proxy.features.admin.gate import WRONG_TOKEN_RATE, WRONG_TOKENS, AdminGate
from doi_proxy.features.admin.http import report_entry
from doi_proxy.rationing import ClientBuckets
from doi_proxy.web.request import Request
from doi_proxy.web.request_path import Header, client_of
from doi_proxy.web.responses import Message
from handle_protocol.referral import Answer, ResponseCode
from tests.cluster.processes import until
from tests.table import table
from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

TOKEN = "correct-horse-battery-staple"
BEARER = f"Bearer {TOKEN}"
NAME = "10.1000/182"


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy(admin_token=TOKEN) as proxy:
        proxy.upstream.put(NAME, url="http://old.example/")
        yield proxy


async def look(proxy: Proxy, target: str) -> Reply:
    return await proxy.get(target, authorization=BEARER)


async def act(proxy: Proxy, action: str, body: Any = None, **headers: str) -> Reply:
    sent = {"authorization": BEARER, "content_type": "application/json", **headers}
    return await proxy.post(f"/admin/{action}", json.dumps({} if body is None else body), **sent)


# --- Actions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["10.1000/182", "https://doi.org/10.1000%252F182"])
async def test_an_entry_is_shown_with_its_value_and_times(proxy: Proxy, spelling: str) -> None:
    assert (await look(proxy, f"/admin/entries?doi={spelling}")).status == 404
    await proxy.get(f"/{NAME}")
    proxy.clock.advance(10)
    entry = (await look(proxy, f"/admin/entries?doi={spelling}")).json
    assert (entry["doi"], entry["state"], entry["age"], entry["tier"]) == (NAME, "fresh", 10, "memory")
    assert entry["values"][0]["data"]["value"] == "http://old.example/"
    assert not entry["verified"]


async def test_an_entry_without_times_has_no_age_and_none_of_1970() -> None:
    undated = Entry(NAME, Answer(ResponseCode.SUCCESS, b"[]"), 0.0, 0.0, FOREVER)
    shown = report_entry(undated, 1_800_000_000.0, "store")
    assert (shown.state, shown.stale_until) == ("stale", "9999-12-31T23:59:59Z")
    assert (shown.fetched, shown.fresh_until, shown.age, shown.ttl) == (None, None, None, None)


async def test_an_entry_says_which_local_record_hides_it(tmp_path: Path) -> None:
    records = tmp_path / "records.toml"
    records.write_text("")
    async with Proxy(admin_token=TOKEN, local_records=records) as proxy:
        proxy.upstream.put(NAME, url="http://old.example/")
        await proxy.get(f"/{NAME}")
        assert (await look(proxy, f"/admin/entries?doi={NAME}")).json["hidden_by"] is None
        records.write_text(f'[[record]]\ndoi = "{NAME}"\ntarget = "http://local.example/"\n')

        async def is_hidden() -> bool:
            entry = (await look(proxy, f"/admin/entries?doi={NAME}")).json
            return bool(entry["hidden_by"] == f"{records}:1")

        await until(is_hidden, 30.0, "the local record is in force")
        await act(proxy, "purge", {"doi": NAME})
        absent = (await look(proxy, f"/admin/entries?doi={NAME}")).json
        assert absent["detail"] == f"The cache has no entry for {NAME}; the local record in {records}:1 answers."


@pytest.mark.parametrize("selection", [{"doi": NAME}, {"prefix": "10.1000"}, {"all": True}])
async def test_a_purge_makes_the_next_request_query_the_upstream(proxy: Proxy, selection: dict[str, Any]) -> None:
    await proxy.get(f"/{NAME}")
    assert (await act(proxy, "purge", {**selection, "dry_run": True})).json["entries"] == 1
    assert (await look(proxy, f"/admin/entries?doi={NAME}")).status == 200
    proxy.upstream.put(NAME, url="http://new.example/")
    assert (await act(proxy, "purge", selection)).json == {
        "entries": 1,
        "soft": False,
        "dry_run": False,
        "pending": False,
    }
    assert (await look(proxy, f"/admin/entries?doi={NAME}")).status == 404
    assert (await proxy.get(f"/{NAME}"))["location"] == "http://new.example/"


async def test_a_purge_that_the_store_did_not_get_is_pending() -> None:
    async with Proxy(admin_token=TOKEN, store_url="valkey://127.0.0.1:1/0") as proxy:
        await proxy.get(f"/{NAME}")
        assert (await act(proxy, "purge", {"doi": NAME, "dry_run": True})).json["pending"] is False
        report = (await act(proxy, "purge", {"doi": NAME})).json
        assert (report["entries"], report["pending"]) == (1, True)


async def test_a_soft_purge_keeps_the_record_for_an_outage(proxy: Proxy) -> None:
    await proxy.get(f"/{NAME}")
    assert (await act(proxy, "purge", {"doi": NAME, "soft": True})).json["entries"] == 1
    proxy.upstream.fault(NAME, "status", status=500)
    reply = await proxy.get(f"/{NAME}")
    assert reply["location"] == "http://old.example/"
    assert "detail=" in str(reply["cache-status"])


async def test_a_refresh_replaces_the_entry(proxy: Proxy) -> None:
    await proxy.get(f"/{NAME}")
    proxy.upstream.put(NAME, url="http://new.example/")
    report = (await act(proxy, "refresh", {"doi": f"https://doi.org/{NAME}"})).json
    assert report["refreshed"] is True
    assert report["entry"]["values"][0]["data"]["value"] == "http://new.example/"
    assert (await proxy.get(f"/{NAME}"))["location"] == "http://new.example/"


async def fill(proxy: Proxy, *names: str) -> None:
    """Put names into the cache, the first one with the oldest answer."""
    for name in names:
        proxy.upstream.put(name, url="http://old.example/")
        await proxy.get(f"/{name}")
        proxy.clock.advance(1)


async def test_a_refresh_of_a_prefix_fetches_the_oldest_answers_up_to_its_limit(proxy: Proxy) -> None:
    names = [f"10.5072/name-{number}" for number in range(5)]
    await fill(proxy, *names, "10.50721/other")
    for name in names:
        proxy.upstream.put(name, url="http://new.example/")
    report = (await act(proxy, "refresh", {"prefix": "10.5072/", "limit": 3})).json
    assert report == {"prefix": "10.5072", "refreshed": 3, "failed": 0, "left_out": 2, "failure": None}
    hosts = [(await proxy.get(f"/{name}"))["location"] for name in names]
    assert hosts == ["http://new.example/"] * 3 + ["http://old.example/"] * 2
    assert proxy.upstream.queries("10.50721/other") == 1


async def test_a_refresh_of_a_prefix_counts_what_fails_and_keeps_it(proxy: Proxy) -> None:
    await fill(proxy, "10.5072/good", "10.5072/bad")
    proxy.upstream.fault("10.5072/bad", "status", status=500)
    report = (await act(proxy, "refresh", {"prefix": "10.5072"})).json
    assert (report["refreshed"], report["failed"], report["left_out"]) == (1, 1, 0)
    assert report["failure"] == "upstream-refused"
    assert (await proxy.get("/10.5072/bad"))["location"] == "http://old.example/"


async def test_a_refresh_of_a_prefix_gives_up_an_upstream_that_fails(proxy: Proxy) -> None:
    names = [f"10.5072/name-{number:02}" for number in range(20)]
    await fill(proxy, *names)
    for name in names:
        proxy.upstream.fault(name, "status", status=500)
    report = (await act(proxy, "refresh", {"prefix": "10.5072"})).json
    assert report["refreshed"] == 0
    assert report["failed"] < len(names)
    assert report["failed"] + report["left_out"] == len(names)


async def test_a_denied_network_gets_403_until_the_end(proxy: Proxy) -> None:
    await proxy.get(f"/{NAME}")
    assert (await act(proxy, "deny", {"network": "198.51.100.0/24", "seconds": 60})).status == 200
    assert (await proxy.ask("GET", f"/{NAME}", client="198.51.100.9")).status == 403
    assert (await proxy.get(f"/{NAME}")).status == 302
    assert (await act(proxy, "deny", {"network": "198.51.100.0/24", "seconds": 0})).status == 200
    assert (await proxy.ask("GET", f"/{NAME}", client="198.51.100.9")).status == 302


async def test_the_settings_are_shown_with_secrets_masked() -> None:
    async with Proxy(admin_token=TOKEN) as proxy:
        reply = await look(proxy, "/admin/settings")
        assert (reply.json["admin_token"], reply.json["management_listen"]) == ("***", "")
        assert TOKEN not in reply.text


async def test_the_api_describes_itself(proxy: Proxy) -> None:
    paths = (await look(proxy, "/admin/openapi.json")).json["paths"]
    assert set(paths) == {
        "/admin/entries", "/admin/purge", "/admin/refresh", "/admin/reload", "/admin/deny", "/admin/settings",
        "/admin/explain",
    }  # fmt: skip


@table(
    ("action", "body"),
    [
        ("purge", {}),
        ("purge", {"doi": NAME, "all": True}),
        ("purge", {"prefix": "banana"}),
        ("purge", {"doi": "x" * 5_000}),
        ("purge", {"doi": "\ud800"}),
        ("purge", {"\ud800": "x"}),
        ("refresh", {"doi": {"\udc00": 1}}),
        ("deny", {"network": "\ud800", "seconds": 1}),
        ("refresh", {"doi": ""}),
        ("refresh", {}),
        ("refresh", {"doi": NAME, "prefix": "10.1000"}),
        ("refresh", {"prefix": "banana"}),
        ("refresh", {"prefix": "10.1000", "limit": 0}),
        ("refresh", {"prefix": "10.1000", "limit": 1_001}),
        ("deny", {"network": "everyone", "seconds": 1}),
        ("deny", {"network": "192.0.2.0/24", "seconds": -1}),
        ("deny", {"network": "192.0.2.0/24", "seconds": 1e12}),
        ("reload", None),
    ],
)
async def test_a_mistake_is_a_problem_that_says_what_is_wrong(proxy: Proxy, action: str, body: Any) -> None:
    reply = await act(proxy, action, body)
    assert (reply.status, reply["content-type"]) == (400, "application/problem+json")
    assert reply.json["status"] == 400
    assert reply.json["detail"]
    assert not re.search(r"[Ee]xtra inputs|Input should|Field required|JSON decode", reply.json["detail"])


@table(
    ("action", "body", "detail"),
    [
        ("purge", {"prefx": "10.1000"}, "prefx: this member is not known."),
        ("purge", [1], "The body is not a JSON object."),
        ("deny", {"network": "192.0.2.0/24"}, "seconds: this is required."),
        ("deny", {"network": "192.0.2.0/24", "seconds": "soon"}, "seconds: this is not a number."),
        (
            "deny",
            {"network": "0.0.0.0/0", "seconds": 1},
            "network: 0.0.0.0/0 has every client; name a smaller network, or stop the service instead.",
        ),
        ("refresh", {"doi": "not a doi"}, "“not a doi” is not a DOI name; a DOI name looks like 10.1000/182."),
    ],
)
async def test_a_mistake_is_described_in_the_words_of_this_program(
    proxy: Proxy, action: str, body: Any, detail: str
) -> None:
    asked = len(proxy.upstream.targets)
    assert (await act(proxy, action, body)).json["detail"] == detail
    assert len(proxy.upstream.targets) == asked


async def test_a_body_that_is_not_json_is_a_problem_with_its_place(proxy: Proxy) -> None:
    reply = await proxy.post("/admin/purge", b"{", authorization=BEARER, content_type="application/json")
    assert reply.json["detail"].startswith("The body is not JSON: ")


async def test_the_denials_in_force_are_listed(proxy: Proxy) -> None:
    assert (await look(proxy, "/admin/deny")).json == {"denied": []}
    until = (await act(proxy, "deny", {"network": "198.51.100.0/24", "seconds": 60})).json
    await act(proxy, "deny", {"network": "203.0.113.9", "seconds": 60})
    await act(proxy, "deny", {"network": "203.0.113.9", "seconds": 0})
    assert (await look(proxy, "/admin/deny")).json == {"denied": [until]}
    events = [event["kind"] for event in (await look(proxy, "/status")).json["events"]]
    assert sorted(events) == ["deny", "start"], "the end of a denial is not an event"


async def test_an_action_is_one_line_of_the_log_without_the_token(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "doi_proxy.endpoints")
    await act(proxy, "purge", {"doi": f"{NAME}\u2028\nforged"})
    await act(proxy, "purge", {"doi": NAME})
    await look(proxy, f"/admin/entries?doi={NAME}")
    lines = [record.getMessage() for record in caplog.records if record.name == "doi_proxy.endpoints"]
    assert lines[-2:] == [
        f'admin: client 192.0.2.0/24, purge {{"doi": "{NAME}"}}: 0 entries',
        f'admin: client 192.0.2.0/24, show {{"doi": "{NAME}"}}: absent',
    ]
    assert all("\n" not in line and TOKEN not in line for line in lines)


@pytest.mark.parametrize(
    "address", ["8001", "127.0.0.1", "127.0.0.1:65536", "::1:8001", "unix:admin.sock", "unix:/" + "x" * 107, "a b:1"]
)
def test_an_address_that_cannot_be_listened_on_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="not an address to listen on"):
        Settings(admin_token=TOKEN, management_listen=[address])


# --- Attacks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/admin/entries?doi=10.1000/182", "/admin/purge", "/admin/openapi.json", "/admin/x"])
async def test_without_a_token_there_is_no_admin_api(path: str) -> None:
    async with Proxy() as proxy:
        for method in ("GET", "POST", "HEAD"):
            raw = await proxy.ask(method, path.replace("/admin/", "/Admin/"), authorization=BEARER)
            assert raw.status == 400


@table("method, network", [("GET", 1), ("HEAD", 2), ("POST", 3), ("OPTIONS", 4), ("PUT", 5), ("DELETE", 6)])
@table(
    "authorization, host",
    [(None, 1), ("Bearer wrong", 2), (f"Basic {TOKEN}", 3), ("Bearer", 4), (f"Bearer {TOKEN}x", 5), (TOKEN, 6)],
)
async def test_a_request_without_the_right_token_is_401(
    proxy: Proxy, method: str, network: int, authorization: str | None, host: int
) -> None:
    headers = {"content_type": "application/json"}
    if authorization is not None:
        headers["authorization"] = authorization
    # Each from a network of its own: several wrong tokens of one are answered with 429.
    client = f"10.{network}.{host}.7"
    reply = await proxy.ask(method, "/admin/purge", body='{"all": true}', client=client, **headers)
    assert reply.status == 401
    assert str(reply["www-authenticate"]).startswith("Bearer")


async def test_a_token_in_the_query_or_in_a_cookie_does_not_count(proxy: Proxy) -> None:
    assert (await proxy.get(f"/admin/settings?access_token={TOKEN}&token={TOKEN}")).status == 401
    assert (await proxy.get("/admin/settings", cookie=f"token={TOKEN}")).status == 401


@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", ""]
)
async def test_a_body_that_a_form_can_send_is_refused(proxy: Proxy, kind: str) -> None:
    assert (await act(proxy, "purge", {"all": True}, content_type=kind)).status == 415


async def test_a_request_without_a_body_needs_no_media_type(proxy: Proxy) -> None:
    reload, with_body = await proxy.ask("POST", "/admin/reload", authorization=BEARER), await act(proxy, "reload", {})
    assert (reload.status, reload.body) == (with_body.status, with_body.body)
    chunked = 'd\r\n{"all": true}\r\n0\r\n\r\n'
    for headers, body in (({}, '{"all": true}'), ({"transfer_encoding": "chunked"}, chunked)):
        got = await proxy.ask("POST", "/admin/purge", body=body, authorization=BEARER, **headers)
        assert got.status == 415


async def test_a_request_of_a_web_page_is_refused(proxy: Proxy) -> None:
    assert (await act(proxy, "purge", {"all": True}, origin="https://doi.example.org")).status == 403
    preflight = await proxy.ask("OPTIONS", "/admin/purge", origin="https://x.example", authorization=BEARER)
    assert preflight.status == 403
    assert preflight["access-control-allow-methods"] is None


async def test_a_large_body_is_refused(proxy: Proxy) -> None:
    reply = await proxy.post("/admin/purge", b" " * 70_000, authorization=BEARER, content_type="application/json")
    assert reply.status == 413


@table(
    ("path", "status"),
    [
        ("/admin/../healthz", 400),
        ("/admin/entries/../settings", 400),
        ("/admin/%2e%2e/settings", 400),
        ("/admin%2Fsettings", 400),
        ("//admin/settings", 400),
        ("/%61dmin/settings", 400),
        ("/admin/settings/", 404),
        ("/admin/settings%00", 404),
        ("/admin/entries?doi=%FF", 404),
        ("/admin/%FF", 404),
    ],
)
async def test_a_trick_with_the_path_reaches_nothing(proxy: Proxy, path: str, status: int) -> None:
    reply = await proxy.ask("GET", path, authorization=BEARER)
    assert reply.status == status
    assert "admin_token" not in reply.text


async def test_wrong_tokens_are_limited_and_do_not_stop_a_right_one_of_the_same_network() -> None:
    async with Proxy(admin_token=TOKEN) as proxy:
        ask = proxy.ask

        async def send(authorization: str, client: str = "192.0.2.99") -> Reply:
            return await ask("GET", "/admin/settings", client=client, authorization=authorization)

        assert [(await send("Bearer wrong")).status for _ in range(12)] == [401] * 10 + [429] * 2
        assert (await send("Bearer wrong"))["retry-after"] is not None
        for _ in range(20):
            assert (await send("Bearer wrong")).status == 429
            assert (await send(BEARER, "192.0.2.3")).status == 200
        assert (await send("Bearer wrong", client="198.51.100.9")).status == 401
        proxy.clock.advance(60)
        assert (await send("Bearer wrong")).status == 401


@table(
    ("method", "headers", "status"),
    [
        ("GET", [], 200),
        ("GET", [(b"authorization", BEARER.encode())], 200),
        ("GET", [(b"authorization", b"Bearer wrong")], 401),
        ("GET", [(b"origin", b"https://other.example")], 403),
        ("POST", [], 401),
        ("POST", [(b"authorization", BEARER.encode())], 200),
        ("HEAD", [], 401),
    ],
)
async def test_at_a_unix_socket_reading_needs_no_token_and_changing_does(
    method: str, headers: list[Header], status: int
) -> None:
    admin = FastAPI()

    @admin.api_route("/admin/anything", methods=["GET", "POST"])
    async def anything() -> dict[str, str]:
        return {}

    attempts = ClientBuckets(WRONG_TOKENS, WRONG_TOKEN_RATE, RateExceeded, time.time)
    gate = AdminGate(admin, token=TOKEN, attempts=attempts, client_of=client_of, base="", has_listener=True)
    scope = {"type": "http", "method": method, "path": "/admin/anything", "raw_path": b"/admin/anything"}
    scope |= {"query_string": b"", "headers": headers, "client": ("", 0), "http_version": "1.1", "root_path": ""}
    scope["server"] = ("/run/doi-proxy/1.sock", None)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        pass

    assert await gate.answer(Request(scope, receive, public_url=None, sub_path=b""), scope, send) == status


async def test_a_reload_replaces_the_token() -> None:
    async with Proxy(admin_token=TOKEN) as proxy:
        proxy.reload(admin_token="n" * 16)
        assert (await look(proxy, "/admin/settings")).status == 401
        assert (await proxy.get("/admin/settings", authorization=f"Bearer {'n' * 16}")).status == 200
        assert proxy.settings.value("admin_token") == "n" * 16


async def test_the_first_token_needs_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    async with Proxy() as proxy:
        proxy.reload(admin_token=TOKEN)
        assert proxy.settings.value("admin_token") is None
    assert "restart the service to open the API" in caplog.text
    assert TOKEN not in caplog.text


def test_a_short_token_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        Settings(admin_token="short")


def test_the_token_is_compared_in_constant_time() -> None:
    source = ast.parse(Path(str(doi_proxy.features.admin.gate.__file__)).read_text(encoding="utf-8"))
    calls = [ast.unparse(node.func) for node in ast.walk(source) if isinstance(node, ast.Call)]
    assert "hmac.compare_digest" in calls
    compared = [ast.unparse(node) for node in ast.walk(source) if isinstance(node, ast.Compare)]
    assert not [text for text in compared if "token" in text]
