"""Units of work without an endpoint, at their largest inputs: the readers of lists, native messages, single texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from doi_names.derived import parse
from doi_names.name import HandleName
from doi_names.presentation import MAX_TYPED_CHARACTERS
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import DoiProxyError
from doi_proxy.features.bundles.bundle import MAX_LINE, InvalidBundleLine, from_line
from doi_proxy.features.native_listener.responder import encode_in_turns, read_request, write_record
from doi_proxy.features.texts.command import write_line
from doi_proxy.list_formats.entries import Item, ReadItem, expand
from doi_proxy.list_formats.formats import BY_NAME
from doi_proxy.list_formats.lines import BLOCK_BYTES, MAX_LINE_BYTES, ListReader
from doi_proxy.resolver.resolution import Origin, Resolution
from handle_protocol.client import read_response
from handle_protocol.errors import HandleProtocolError
from handle_protocol.referral import Answer, ResponseCode, read_answer
from handle_protocol.value import MAX_VALUES
from handle_protocol.wire.message import (
    EncodedValues,
    Envelope,
    Filters,
    Header,
    OpCode,
    Query,
    Response,
    ResponseStatus,
    Values,
    decode_response,
    encode_query,
)
from handle_protocol.wire.site_value import Value, ValueReference
from tests.handle_protocol.encoder import as_received, encode_response
from tests.hostile.records import PREFIX
from tests.hostile.turn_rows import AT_THE_LIMIT, long_texts
from tests.hostile.upstream import body_of

#: What makes readers of lists work: marks of their formats, unfinished values, lines without a name.
_PIECES: Final = (
    *("\n", "#\n", " \n", "a\n", "10.1000/1\n", "a" * 100, '"', '""', '"\n', ",", ";", "\t", "[", "]", "{", "}"),
    *("@\n", "@a{\n", "doi=", "doi={", 'doi="', "doi={{\n", "doi = {10.1/x},\n", "\\{", "\\url{", "\\textless", "$<$"),
    *("https://doi.org/10.1/x ", "TY  - \n", "DO  - 10.1/x\n", "UR  - https://doi.org/10.1/x\n", "ER  - \n"),
    *('{"doi":', "\u00e9", "\\"),
)
_BEGINNINGS: Final = dict.fromkeys(BY_NAME, b"") | {
    "csv": b"doi\n",
    "json": b"[",
    "bibtex": b"@article{x,\n title={",
    "ris": b"TY  - JOUR\nN1  - ",
    "medline": b"PMID- 1\nTI  - ",
    "endnote": b"%0 Book\n%Z ",
    "wos": b"PT J\nTI ",
}
_LIST_BYTES: Final = 2 * MAX_LINE_BYTES


Steps = Callable[[], Iterator[Callable[[], object]]]


@dataclass(frozen=True, slots=True)
class Unit:
    """Work that one turn does. `prepare` returns the steps, each of which is a turn."""

    name: str
    largest: str
    prepare: Steps


def _once(step: Callable[[], object]) -> Steps:
    """Work that is one turn."""
    return lambda: iter([step])


def readers() -> Iterator[Unit]:
    """Each format of lists with each piece, in one line and in many."""
    for form, beginning in _BEGINNINGS.items():
        for piece in _PIECES:
            data = beginning + piece.encode() * (_LIST_BYTES // len(piece.encode()))
            yield Unit(f"reader of {form}", f"a block of {BLOCK_BYTES:,} bytes", partial(_read, form, data))


def _read(form: str, data: bytes) -> Iterator[Callable[[], object]]:
    reader: ListReader = BY_NAME[form].open(MAX_LINE_BYTES, None, None)
    items: list[ReadItem] = []

    def feed(block: bytes) -> None:
        items.extend(reader.feed(block))

    for start in range(0, len(data), BLOCK_BYTES):
        yield partial(feed, data[start : start + BLOCK_BYTES])
    yield lambda: items.extend(reader.end())
    groups = expand(items)
    found: list[list[Item] | None] = [[]]
    while found[-1] is not None:
        yield lambda: found.append(next(groups, None))


def bundle_lines() -> Iterator[Unit]:
    """Lines of a bundle."""
    for record in AT_THE_LIMIT:
        body = body_of(f"{PREFIX}/{record}")
        assert body is not None
        if len(body) <= MAX_LINE:
            yield Unit("line of a bundle", "a record of 256 KiB", _once(partial(from_line, body)))


def native_messages() -> Iterator[Unit]:
    """Answers of handle servers by the native protocol."""
    references = tuple(ValueReference(b"10.1000/1", 1) for _ in range(1_000))
    records: dict[str, tuple[Value, ...]] = {
        f"{MAX_VALUES:,} values": tuple(Value(at, b"URL", b"http://a/") for at in range(1, MAX_VALUES + 1)),
        "one value of 1 MB": (Value(1, b"DESC", b"\x01" * 1_000_000),),
        "250 kB of text": (Value(1, b"DESC", b'<\\"' * 60_000),),
        "1,000 references": (Value(1, b"HS_VLIST", b"", references=references),),
        "250 kB of keys": tuple(Value(at, b"HS_PUBKEY", b"\0\0\0\x0bRSA_PUB_KEY" + b"\1" * 2_000) for at in range(100)),
    }
    for largest, values in records.items():
        header = Header(OpCode.RESOLUTION, ResponseStatus.SUCCESS)
        message = encode_response(as_received(Response(Envelope(7), header, Values(b"10.1000/1", values))))
        yield Unit("native message", largest, _once(partial(_answer, message)))

    for largest, record in _records():
        yield Unit("answer of the native listener", largest, partial(_listen, record))


def _records() -> Iterator[tuple[str, bytes]]:
    """The values of records that the listener has to encode."""
    for name in AT_THE_LIMIT:
        with suppress(DoiProxyError, HandleProtocolError):
            yield "a record of 256 KiB", read_answer(body_of(f"{PREFIX}/{name}") or b"", f"{PREFIX}/{name}").values
    value = {"index": 1, "type": "X", "timestamp": "2026-01-01T00:00:00Z", "ttl": "2030-01-01T00:00:00Z"}
    reference, data = [{"handle": "a", "index": 1}], {"format": "base64", "value": "AAAA"}
    yield "1,000 values", json.dumps([value | {"data": data, "references": reference}] * MAX_VALUES).encode()
    yield "9,000 references", json.dumps([value | {"data": "a", "references": reference * 9_000}]).encode()
    yield "9,000 references", json.dumps([value | {"data": {"format": "vlist", "value": reference * 9_000}}]).encode()


def _listen(values: bytes) -> Iterator[Callable[[], object]]:
    """The turns of an answer, after those of the resolver."""
    entry = Entry("10.1000/1", Answer(ResponseCode.SUCCESS, values), 0.0, 9.0, 9.0)
    found = Resolution(HandleName("10.1000/1"), entry, Origin.ASKED)
    found.record.select()
    request = read_request(encode_query(Query(Filters(b"10.1000/1", indexes=tuple(range(1_000))), 7, 1)))
    turns = encode_in_turns(request, found)
    results: list[EncodedValues] = []

    def run() -> None:
        try:
            turns.send(None)
        except StopIteration as end:
            results.append(end.value)

    while not results:
        yield run
    yield partial(write_record, request, found, results[0], 1.0)


def _answer(message: bytes) -> object:
    return read_response(decode_response(message, digest_requested=False), is_verified=False)


def texts() -> Iterator[Unit]:
    """Single texts, parsed with warnings and suggestions, and written."""
    for text in long_texts(MAX_TYPED_CHARACTERS):
        yield Unit("reader of a single text", f"{MAX_TYPED_CHARACTERS:,} characters", _once(partial(_parse, text)))


def _parse(text: str) -> bytes:
    return write_line(parse(text, own_hosts=frozenset({"127.0.0.1"})), "http://127.0.0.1")


def attempt(step: Callable[[], object]) -> bool:
    """Do a step. Returns whether the next one follows."""
    try:
        step()
    except (DoiProxyError, HandleProtocolError, InvalidBundleLine):
        return False
    return True
