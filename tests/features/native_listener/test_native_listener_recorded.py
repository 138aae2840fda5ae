"""Requests that were recorded at the reference handle server are answered as it answered them, or as is listed here.

The listener has the records of that server, from its own answers. Its answers have no signature, no site of that server
and no text of its errors, and they repeat fewer flags, so those are not compared.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from doi_names.name import fold
from handle_protocol.json_sites import write_json_values
from handle_protocol.wire.message import OpFlag, PacketBuffer, Response, Values, decode_response
from handle_protocol.wire.site_value import Permission, TtlType, Value
from tests.features.native_listener.listening import Listening, listening, post
from tests.handle_protocol.recorded import Row, messages, needs_recordings

pytestmark = [pytest.mark.anyio, needs_recordings]

_MAX_BYTES: Final = 1 << 20
_NAMES: Final = "Names of other servers are resolved"
_UNREADABLE: Final = "What is not a request is code 4; UDP drops it, and TCP is closed if it was cut off"
_OPERATION: Final = "Any operation but resolution and site information is code 5"
#: The row of docs/deviations.md that explains another answer, by the response codes that were recorded and that are
#: sent now; None is no answer.
_LISTED: Final = {
    (301, 1): _NAMES,
    (301, 100): _NAMES,
    (303, 100): _NAMES,
    (2, 100): _NAMES,
    (6, 100): "The recursion count of a request is not read",
    (402, 1): "Only public values are answered, with the flag for public values and without it",
    (2, 5): _OPERATION,
    (4, 5): _OPERATION,
    (2, 4): _UNREADABLE,
    (100, 4): _UNREADABLE,
    (1, 4): _UNREADABLE,
    (2, None): _UNREADABLE,
    (4, None): _UNREADABLE,
    (100, None): _UNREADABLE,
    (100, 102): "A handle that is empty, not UTF-8 or has control characters is code 102",
    (501, 500): "Every session is unknown, which is code 500",
}
_DEVIATIONS: Final = Path(__file__).parents[3] / "docs/deviations.md"


def _recorded_answer(item: Row) -> Response | None:
    decoded = item["decoded"]
    if not decoded.get("response") or decoded.get("response_cut") or "header" not in decoded["response"]:
        return None
    data = bytes.fromhex(item.get("response_hex") or "")
    if not data:
        buffer = PacketBuffer(_MAX_BYTES)
        joined = [buffer.add(bytes.fromhex(packet)) for packet in item["packets_hex"]]
        data = next(message for message in joined if message is not None)
    return _decode(item, data)


def _decode(item: Row, data: bytes) -> Response:
    flags = int.from_bytes(bytes.fromhex(item["request_hex"])[28:32])
    return decode_response(data, digest_requested=bool(flags & OpFlag.REQUEST_DIGEST))


def _public(values: tuple[Value, ...]) -> tuple[Value, ...]:
    return tuple(value for value in values if value.permissions & Permission.PUBLIC_READ)


def _records() -> dict[str, tuple[Value, ...]]:
    """The records of the reference server: the most values that an answer had about a name."""
    records: dict[str, tuple[Value, ...]] = {}
    for item in messages():
        answer = _recorded_answer(item)
        if answer is not None and answer.code == 1 and isinstance(answer.body, Values):
            name = fold(answer.body.handle.decode()).replace("0.NA/10", "10")
            records[name] = max(records.get(name, ()), _public(answer.body.values), key=len)
    return records


async def _ask(proxy: Listening, item: Row, by: str) -> Response | None:
    request = bytes.fromhex(item["request_hex"])
    if by == "udp":
        answer = await proxy.exchange(request, by="udp")
    elif by == "tcp":
        answer = await proxy.send(request, end=True)
    else:
        answer = (await proxy.send(post(request))).partition(b"\r\n\r\n")[2]
    return _decode(item, answer) if answer else None


def _compare(recorded: Response, answer: Response) -> bool:
    """Whether an answer says the same. The JSON of the handle API has no TTL of a third type."""
    if recorded.header.op_code and (answer.envelope.version, answer.digest) != (
        recorded.envelope.version,
        recorded.digest,
    ):
        return False
    if not isinstance(recorded.body, Values):
        return True
    assert isinstance(answer.body, Values) and answer.body.handle == recorded.body.handle
    types = (TtlType.RELATIVE, TtlType.ABSOLUTE)
    wanted = (one if one.ttl_type in types else replace(one, ttl_type=1) for one in _public(recorded.body.values))
    return answer.body.values == tuple(wanted)


async def test_every_recorded_request_is_answered_as_it_was_or_as_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    # One client sends them all.
    monkeypatch.setattr("doi_proxy.features.native_listener.stream.MAX_ANSWERS", 10**6)
    counts: Counter[str] = Counter()
    unlike: list[str] = []
    async with listening(resolve="any") as proxy:
        for name, values in _records().items():
            proxy.upstream.put(name, json.loads(write_json_values(values)))
        for item in messages():
            recorded = _recorded_answer(item)
            if recorded is None:
                continue
            began = proxy.clock.now
            answer = await _ask(proxy, item, item["transport"])
            # A packet without an answer is waited for. TTLs are those of the beginning.
            proxy.clock.advance(began - proxy.clock.now)
            if answer is None and recorded.code == 1:
                answer = await _ask(proxy, item, "tcp")
                counts["by TCP"] += 1
            codes = (recorded.code, None if answer is None else answer.code)
            if codes in _LISTED:
                counts["listed"] += 1
            elif answer is not None and codes[0] == codes[1] and _compare(recorded, answer):
                counts["as recorded"] += 1
            else:
                unlike.append(f"{item['id']} {item['what']}: {codes}")
    assert unlike == []
    assert counts == {"as recorded": 229, "by TCP": 11, "listed": 94}


def test_each_other_answer_is_a_row_of_the_deviations() -> None:
    rows = [line.split(" | ")[0].removeprefix("| ") for line in _DEVIATIONS.read_text("utf-8").splitlines()]
    assert [row for row in set(_LISTED.values()) if row not in rows] == []
