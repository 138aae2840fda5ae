"""A refreshed root is kept beside the store, as answers that lead from the operator's file to it."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.dsa import DSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

from doi_proxy.errors import UpstreamRefused, UpstreamUnreachable
from doi_proxy.features.native.errors import HandleServerUnreachable, NoResponsibleService
from doi_proxy.features.native.root_file import DirectoryLog, RootFile, root_file_path
from handle_protocol.errors import ServerTimeout, SignatureInvalid, UnusableAnswer
from handle_protocol.referral import ROOT_HANDLE, Answer, HandleService, ResponseCode
from handle_protocol.signature_chain import MAX_ANSWERS, extend_chain, follow_chain
from handle_protocol.wire.message import Envelope, Header, OpCode, OpFlag, Response, Values
from handle_protocol.wire.site_value import (
    Interface,
    Permission,
    Server,
    ServiceSite,
    Value,
    encode_site,
)
from tests.clock import Clock
from tests.features.native.clients import TCP, client_of, query
from tests.handle_protocol.encoder import encode_response
from tests.handle_protocol.keys import dsa_key, public_bytes, rsa_key, sign
from tests.handle_protocol.server import HandleServer, write_bootstrap
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio


_Key = RSAPrivateKey | DSAPrivateKey
_RSA: Final = rsa_key()
_DSA: Final = dsa_key()


def _site(key: _Key, serial: int = 1) -> ServiceSite:
    server = Server(1, bytes(12) + bytes((93, 184, 216, 34)), public_bytes(key), (Interface(2, 1, 2641),))
    return ServiceSite(serial, (server,))


def _root(*keys: _Key) -> HandleService:
    return HandleService(tuple(map(_site, keys)), is_verified=True)


def _answer(signer: _Key, *sites: ServiceSite, **changes: Any) -> Response:
    """An answer about the root with these sites."""
    values = tuple(Value(1, b"HS_SITE", encode_site(site)) for site in sites)
    header = Header(OpCode.RESOLUTION, 1, site_serial=1)
    response = Response(Envelope(7), header, Values(ROOT_HANDLE, values))
    return sign(replace(response, **changes), signer)


def _chain(*answers: Response) -> tuple[bytes, ...]:
    return tuple(map(encode_response, answers))


# --- the chain ---------------------------------------------------------------------------------------------------


def test_each_answer_is_signed_by_a_key_of_the_root_before() -> None:
    third = _key()
    links = _chain(_answer(_RSA, _site(_DSA)), _answer(_DSA, _site(third)))
    assert follow_chain(_root(_RSA), links) == _root(third)


def test_any_server_of_the_root_can_sign() -> None:
    assert follow_chain(_root(_RSA, _DSA), _chain(_answer(_DSA, _site(_DSA)))) == _root(_DSA)


@pytest.mark.parametrize(
    "forged",
    [
        _answer(_DSA, _site(_DSA)),
        replace(_answer(_RSA, _site(_DSA)), credential=None),
        replace(_answer(_RSA, _site(_DSA)), body=Values(ROOT_HANDLE, _answer(_RSA, _site(_RSA)).body.values)),  # type: ignore[union-attr]
        _answer(_RSA, _site(_DSA), body=Values(b"0.NA/10.5072", (Value(1, b"HS_SITE", encode_site(_site(_DSA))),))),
        _answer(_RSA, _site(_DSA), header=Header(OpCode.RESOLUTION, 303, site_serial=1)),
        _answer(_RSA, _site(_DSA), envelope=Envelope(7, minor=5)),
        _answer(_RSA),
    ],
    ids=["other key", "unsigned", "other content", "other handle", "other code", "old version", "no sites"],
)
def test_what_the_root_before_did_not_sign_about_the_root_is_refused(forged: Response) -> None:
    with pytest.raises(UnusableAnswer):
        follow_chain(_root(_RSA), _chain(forged))


@pytest.mark.parametrize("damaged", [b"", b"x" * 100, _chain(_answer(_RSA, _site(_DSA)))[0][:-1]])
def test_a_damaged_answer_is_refused(damaged: bytes) -> None:
    with pytest.raises(UnusableAnswer):
        follow_chain(_root(_RSA), [damaged])


def test_a_chain_is_extended_from_the_earliest_root_that_signed() -> None:
    first, second = _answer(_RSA, _site(_DSA)), _answer(_DSA, _site(_DSA, serial=2))
    assert extend_chain(_root(_RSA), (), first) == _chain(first)
    assert extend_chain(_root(_RSA), _chain(first), second) == _chain(first, second)
    # The operator's root signed this one itself.
    again = _answer(_RSA, _site(_RSA, serial=3))
    assert extend_chain(_root(_RSA), _chain(first, second), again) == _chain(again)


def test_an_answer_that_no_root_of_the_chain_signed_does_not_extend_it() -> None:
    with pytest.raises(SignatureInvalid):
        extend_chain(_root(_RSA), _chain(_answer(_RSA, _site(_RSA, serial=2))), _answer(_DSA, _site(_DSA)))


def test_a_chain_has_a_bounded_length() -> None:
    keys = [_RSA, *(_key() for _ in range(MAX_ANSWERS + 1))]
    *links, last = [_answer(signer, _site(after)) for signer, after in pairwise(keys)]
    assert follow_chain(_root(_RSA), _chain(*links)) == _root(keys[-2])
    with pytest.raises(UnusableAnswer, match="over 16 answers"):
        follow_chain(_root(_RSA), _chain(*links, last))
    with pytest.raises(UnusableAnswer, match="over 16 answers"):
        extend_chain(_root(_RSA), _chain(*links), last)


def _key() -> RSAPrivateKey:
    return generate_private_key(65_537, 1_024)


# --- the file ----------------------------------------------------------------------------------------------------


async def test_a_refreshed_root_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "store.root.json"
    await RootFile(path, _root(_RSA)).keep(_answer(_RSA, _site(_DSA)))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    file = RootFile(path, _root(_RSA))
    assert file.service == _root(_DSA)
    await file.keep(_answer(_DSA, _site(_DSA, serial=2)))
    assert RootFile(path, _root(_RSA)).service.sites == (_site(_DSA, serial=2),)
    assert [one.name for one in tmp_path.iterdir()] == ["store.root.json"]


async def test_another_file_of_the_operator_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store.root.json"
    await RootFile(path, _root(_RSA)).keep(_answer(_RSA, _site(_DSA)))
    with caplog.at_level(logging.INFO):
        file = RootFile(path, _root(_RSA, _DSA))
    assert file.service == _root(_RSA, _DSA)
    assert "upstream_bootstrap has changed" in caplog.text
    await file.keep(_answer(_DSA, _site(_DSA, serial=2)))
    assert RootFile(path, _root(_RSA, _DSA)).service.sites == (_site(_DSA, serial=2),)


_FOREIGN: Final = b64encode(_chain(_answer(_RSA, _site(_RSA)))[0]).decode()


def _cut(answer: str) -> str:
    return b64encode(b64decode(answer)[:-9]).decode()


def _forge(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("no key of the root before signed an answer", lambda content: content["answers"].append(_FOREIGN)),
        (
            "A message of the native Handle protocol cannot be decoded. envelope: the message length is 744, not 735",
            lambda content: content["answers"].__setitem__(0, _cut(content["answers"][0])),
        ),
        ("Only base64 data is allowed", lambda content: content["answers"].__setitem__(0, "?")),
        ("it cannot be read: Object missing required field `answers`", lambda content: content.pop("answers")),
        ("the chain has over 16 answers", lambda content: content.update(answers=content["answers"] * 17)),
        ("it is larger than 1048576 bytes", lambda content: content.update(answers="x" * 2_000_000)),
    ],
)
async def test_a_forged_file_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reason: str, change: Callable[[dict[str, Any]], object]
) -> None:
    path = tmp_path / "store.root.json"
    await RootFile(path, _root(_RSA)).keep(_answer(_RSA, _site(_DSA)))
    _forge(path, change)
    file = RootFile(path, _root(_RSA))
    assert file.service == _root(_RSA)
    [line] = [record.getMessage() for record in caplog.records]
    assert line == f"the root in {path} is not used, but that of upstream_bootstrap: {reason}"
    await file.keep(_answer(_RSA, _site(_DSA)))
    assert RootFile(path, _root(_RSA)).service == _root(_DSA)


async def test_a_file_that_cannot_be_written_costs_a_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = RootFile(tmp_path / "none" / "store.root.json", _root(_RSA))
    await file.keep(_answer(_RSA, _site(_DSA)))
    assert "the refreshed root could not be kept" in caplog.text
    (tmp_path / "folder").mkdir()
    await RootFile(tmp_path / "folder", _root(_RSA)).keep(_answer(_RSA, _site(_DSA)))
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]


async def test_without_a_sqlite_store_nothing_is_kept() -> None:
    assert root_file_path("memory:") is None
    assert root_file_path("valkey://localhost") is None
    assert root_file_path("sqlite:////var/lib/x.sqlite3") == Path("/var/lib/x.sqlite3.root.json")
    await RootFile(None, _root(_RSA)).keep(_answer(_RSA, _site(_DSA)))


# --- with a proxy ------------------------------------------------------------------------------------------------


async def test_a_new_key_of_the_root_counts_after_a_restart(tmp_path: Path) -> None:
    file, kept = tmp_path / "root.json", tmp_path / "store.sqlite3.root.json"
    settings = {
        "upstream_url": "hdl:",
        "upstream_bootstrap": file,
        "upstream_private_servers": True,
        "store_url": f"sqlite:///{tmp_path}/store.sqlite3",
    }
    async with HandleServer(key=dsa_key(), serial=2) as new, HandleServer(serial=3) as home:
        new.put_values("0.NA/0.NA", new.site_value())
        new.put_values("0.NA/10.1001", home.site_value())
        home.put("10.1001/1", url="http://one.example/")
        async with HandleServer() as old:
            file.write_bytes(write_bootstrap(old))
            old.put_values("0.NA/0.NA", new.site_value())
            async with Proxy(**settings) as proxy:
                await proxy.ask("GET", "/10.1000/1")
                await _until(kept.exists)
        async with Proxy(**settings) as proxy:
            got = await proxy.ask("GET", "/api/handles/10.1001/1?cert")
            assert (got["cache-status"] or "").endswith("; detail=verified")
        kept.unlink()
        async with Proxy(**settings) as proxy:
            assert (await proxy.ask("GET", "/api/handles/10.1002/1?cert")).status == 502


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the tasks of a directory have no event
            await asyncio.sleep(0.1)


def test_a_root_that_cannot_be_refreshed_is_a_line_and_its_return_another(caplog: pytest.LogCaptureFixture) -> None:
    log = DirectoryLog(Clock())
    for error in (None, ServerTimeout(), ServerTimeout(), None, None):
        log.record_refresh(error)
    failed, returned = caplog.messages
    assert failed.startswith("the root of the handle system could not be refreshed: upstream-timeout: ")
    assert returned == "the root of the handle system was refreshed again"


# --- The native source answers as an HTTP API does, with `auth` and `cert`, at one server and from the root ----------


NAME = "10.1000/182"
PREFIX = "0.NA/10.1000"


async def test_a_record_without_public_values_has_no_values() -> None:
    async with HandleServer() as server, client_of(server) as client:
        server.put_values(NAME, Value(1, b"URL", b"http://secret.example/", permissions=Permission.ADMIN_READ))
        assert await client.fetch(query(NAME)) == Answer(ResponseCode.VALUES_NOT_FOUND)


async def test_every_query_is_for_public_values_and_for_a_digest() -> None:
    async with HandleServer() as server, client_of(server) as client:
        await client.fetch(query(NAME))
        assert server.flags == [OpFlag.PUBLIC_ONLY | OpFlag.REQUEST_DIGEST]


async def test_a_server_that_is_not_responsible_works_and_does_not_answer() -> None:
    async with HandleServer() as server, client_of(server) as client:
        server.lie("", "not-responsible")
        assert (await client.probe()).code is ResponseCode.HANDLE_NOT_FOUND
        with pytest.raises(UpstreamRefused) as caught:
            await client.fetch(query(NAME))
        assert caught.value.concerns_name


# From the root


async def test_the_failure_of_the_server_of_a_prefix_concerns_its_names_alone() -> None:
    async with HandleServer(serial=2) as home:
        pass
    async with HandleServer() as root, client_of(root, from_root=True) as client:
        root.put_values(PREFIX, home.site_value())
        with pytest.raises(HandleServerUnreachable) as caught:
            await client.fetch(query(NAME))
        assert caught.value.concerns_name
        await client.probe()


async def test_the_failure_of_the_root_concerns_every_name() -> None:
    async with HandleServer() as root:
        pass
    async with client_of(root, from_root=True, protocols=(TCP,)) as client:
        with pytest.raises(UpstreamUnreachable) as caught:
            await client.fetch(query(NAME))
        assert not caught.value.concerns_name


async def test_servers_at_private_addresses_are_not_queried_unless_the_operator_says_so() -> None:
    async with HandleServer() as root, client_of(root, from_root=True, private_servers=False) as client:
        with pytest.raises(NoResponsibleService):
            await client.fetch(query(NAME))
        assert root.queries() == 0
