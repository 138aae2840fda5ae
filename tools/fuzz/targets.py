"""What is fuzzed: functions that take any bytes, and raise only where a fact about the program does not hold.

An error that the function under test documents is an answer, not a finding.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import cache
from io import BytesIO
from ipaddress import ip_address
from itertools import pairwise
from typing import Any, Final
from zlib import crc32

from doi_names.derived import derive, list_variants, parse
from doi_names.errors import InvalidName
from doi_names.find_names import find_names
from doi_names.name import DOIName, HandleName
from doi_names.presentation import BLANKS, read_exact, read_path, read_typed, url_path
from doi_names.suggestion import MAX_SUGGESTIONS, read_and_suggest
from doi_proxy.assembly.core import open_cache
from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import InvalidParameter, StoreError, UnreadableList
from doi_proxy.features.bundles.bundle import InvalidBundleLine, from_line
from doi_proxy.features.native_listener.responder import Peer, Responder, read_request
from doi_proxy.features.registry import json_values
from doi_proxy.features.registry.answers import to_entry
from doi_proxy.features.registry.import_parts import ArchiveReader, InvalidArchive, cut_blocks
from doi_proxy.features.registry.json_values import (
    BlockReader,
    CrossrefReader,
    DataCiteReader,
    Findings,
    RecordDates,
    RegistryRow,
    detect_format,
)
from doi_proxy.features.registry.sqlite_blocks import FORMAT_VERSION, find_row, unpack_block, unpack_lines
from doi_proxy.features.texts.command import write_line
from doi_proxy.list_formats.bibliographies import ENDNOTE, MEDLINE, RIS, WEB_OF_SCIENCE, BibtexReader, TaggedReader
from doi_proxy.list_formats.entries import ReadItem, expand
from doi_proxy.list_formats.json_lists import JsonLinesReader, JsonListReader
from doi_proxy.list_formats.lines import LinesReader, ListReader
from doi_proxy.list_formats.tables import ColumnReader
from doi_proxy.main import SuppliedParts, create
from doi_proxy.resolver.resolution import Client
from doi_proxy.resolver.target import choose_location
from doi_proxy.store.stored_entry import compress, pack, unpack
from doi_proxy.upstream.source import read_retry_after
from doi_proxy.web.languages import choose_language
from doi_proxy.web.negotiation import negotiate
from doi_proxy.web.request_path import read_api_options, read_form_body, read_options, read_query
from handle_protocol.errors import HandleProtocolError, MalformedMessage
from handle_protocol.json_sites import write_json_values
from handle_protocol.location import MalformedLocations, read_locations, read_namespace
from handle_protocol.referral import Answer, ResponseCode, read_answer
from handle_protocol.value import read_values, write_values
from handle_protocol.wire.message import (
    ENVELOPE_BYTES,
    AnswerText,
    OpFlag,
    ResponseStatus,
    Values,
    decode_filters,
    decode_response,
    encode_filters,
)
from handle_protocol.wire.site_value import decode_public_key, decode_site, encode_public_key, encode_site
from tests.handle_protocol.encoder import encode_response

_NOW: Final = 1_700_000_000.0
#: The longest input that a target looks at: the findings of longer ones are the hostile records'.
_MAX_SUGGESTED: Final = 300
_MAX_PARSED: Final = 300
#: The longest line of a list.
_MAX_LINE: Final = 64


def name(data: bytes) -> None:
    """A name is read from a path or from what a person typed, and its URL path means the same name."""
    for read in (read_path, read_exact):
        try:
            _same_name_from_its_path(read(data))
        except InvalidName:
            continue
    try:
        typed = read_typed(data.decode("utf-8", "replace"))
    except InvalidName:
        return
    if len(typed.text) <= _MAX_SUGGESTED:
        for suggestion in (*read_and_suggest(typed.text, typed)[1], *list_variants(typed)):
            _same_name_from_its_path(suggestion.doi)


def finding(data: bytes) -> None:
    """The names in any text are in its order, and what else each may be is a name."""
    text = data.decode("utf-8", "replace")
    found = find_names(text)
    assert all(one.end <= other.start for one, other in pairwise(found))
    for place in (*found, *derive(text)):
        assert text[place.start : place.end] == place.text
        for name in (place.name, *(other.doi for other in place.suggestions)):
            assert name.is_short_doi or DOIName.parse(name.text) == name, place


def suggestion(data: bytes) -> None:
    """Names are suggested for any text, and none of them is the name that the text has."""
    text = data.decode("utf-8", "replace")
    found = parse(text, own_hosts=frozenset({"doi.example.org"})).suggestions
    assert len(found) <= MAX_SUGGESTIONS
    for each in found:
        assert each.doi.is_short_doi or DOIName.parse(each.doi.text) == each.doi, each
        _same_name_from_its_path(each.doi)
    try:
        assert read_typed(text) not in [each.doi for each in found]
    except InvalidName:
        return


def _same_name_from_its_path(found: HandleName) -> None:
    path = url_path(found)
    assert path.isascii() and not set(path) & set(" \r\n?#"), path
    assert read_exact(path.encode("ascii")) == found, (path, found)


def parsing(data: bytes) -> None:
    """Any text is of one kind, and the object about it is one line of JSON. A DOI name in it is read as it stands."""
    parsed = parse(data.decode("utf-8", "replace")[:_MAX_PARSED])
    line = write_line(parsed, "https://doi.example.org")
    assert len(line.decode("utf-8").splitlines()) == 1
    assert json.loads(line)["input"] == parsed.text
    assert (parsed.message is None) == (parsed.doi is not None)
    if parsed.doi is not None:
        again = parse(parsed.doi.text.replace("%", "%25"))
        assert again.doi == parsed.doi or parsed.doi.text.strip(BLANKS) != parsed.doi.text, (parsed, again)


def answer(data: bytes) -> None:
    """An answer of the upstream is read or refused; what is kept of it can be read again, and its end is a number."""
    try:
        found = read_answer(data, "10.1000/182")
    except HandleProtocolError:
        return
    record = read_values(found.values)
    assert write_values(record) == found.values
    end = record.ends_at(_NOW)
    assert end == end
    read_namespace(record)


def locations(data: bytes) -> None:
    """Locations are read or refused, and one of them is chosen."""
    try:
        found = read_locations(data.decode("utf-8", "replace"))
    except MalformedLocations:
        return
    client = Client(address=ip_address("192.0.2.7"), country="de")
    chosen = choose_location(found.items, found.setting("chooseby"), client, (("country", "uk"),))
    assert (chosen.location is not None) == bool(found.items)
    for one in found.items:
        one.href("10.1000/182", "10.1000/182")


def query(data: bytes) -> None:
    """A query or a form is read; what it asks is bounded."""
    for parameters in (read_query(data), read_query(data, semicolons=False), read_form_body(data)):
        read_options(parameters)
        try:
            read_api_options(parameters)
        except InvalidParameter:
            continue


def headers(data: bytes) -> None:
    """Accept and Accept-Language are read, whatever they hold."""
    accept, _, language = data.decode("latin-1").partition("\n")
    negotiate(accept, language, browser=len(accept) % 2 == 0)
    assert choose_language(language, ("en", "de")) in ("en", "de")


def stored(data: bytes) -> None:
    """An entry of a store is read or refused; what is read is written with the same answer, in whole seconds."""
    try:
        entry = unpack("10.1000/182", data)
    except StoreError:
        return
    if entry is None:
        return
    again = unpack("10.1000/182", pack(entry))
    assert again is not None
    assert (again.answer, again.fetched_at) == (entry.answer, entry.fetched_at)
    for before, after in ((entry.fresh_until, again.fresh_until), (entry.stale_until, again.stale_until)):
        assert -0.001 <= before - after <= 1.001


def block(data: bytes) -> None:
    """A block of registry records is read or refused, by its bytes and by its text. A row is found as it is read."""
    first = "10.1000/182"
    body = bytes((FORMAT_VERSION,)) + compress(data)
    check = crc32(body, crc32(first.encode())).to_bytes(4, "little")
    for stored_block in (data, check + body):
        try:
            rows = unpack_block(first, stored_block)
        except StoreError:
            continue
        firsts: dict[str, RegistryRow] = {}
        for row in rows:
            firsts.setdefault(row[0], row)
            assert to_entry(row).key == row[0]
        for key, row in firsts.items():
            assert find_row(key, unpack_lines(first, stored_block)) == row


def line(data: bytes) -> None:
    """A line of a bundle is read or refused."""
    try:
        from_line(data)
    except InvalidBundleLine:
        return


def retry_after(data: bytes) -> None:
    """A Retry-After is seconds, or is not understood."""
    seconds = read_retry_after(data.decode("latin-1"), _NOW)
    assert seconds is None or 0.0 <= seconds <= 3_600.0


def lists(data: bytes) -> None:
    """A list has the same items wherever its bytes are cut. The first byte chooses the reader and the place."""
    if not data:
        return
    _read_cut(_READERS[data[0] % len(_READERS)], data)


def bibtex(data: bytes) -> None:
    """A BibTeX file has the same names wherever its bytes are cut. The first byte is the place."""
    _require_lines(_read_cut(lambda: BibtexReader(_MAX_LINE), data), data)


def ris(data: bytes) -> None:
    """The same for a RIS file."""
    _require_lines(_read_cut(lambda: TaggedReader(RIS, _MAX_LINE), data), data)


def _read_cut(make: Callable[[], ListReader], data: bytes) -> list[ReadItem]:
    cut, body = data[0] * (len(data) - 1) // 256 if data else 0, data[1:]
    whole, pieces = _read_list(make(), body), _read_list(make(), body[:cut], body[cut:])
    # Which of two errors comes first may depend on the cut.
    assert whole == pieces or (whole is None and pieces is None), (whole, pieces)
    return whole or []


def _require_lines(items: list[ReadItem], data: bytes) -> None:
    """Each item is text of one of the lines."""
    most = data[1:].count(b"\n") + 1
    found = [item for group in expand(items) for item in group]
    assert all(1 <= item.line <= most and item.text for item in found), found


_READERS: Final[tuple[Callable[[], ListReader], ...]] = (
    lambda: LinesReader(_MAX_LINE),
    lambda: ColumnReader(_MAX_LINE),
    lambda: JsonLinesReader(_MAX_LINE),
    lambda: JsonListReader(_MAX_LINE),
    lambda: TaggedReader(MEDLINE, _MAX_LINE),
    lambda: TaggedReader(ENDNOTE, _MAX_LINE),
    lambda: TaggedReader(WEB_OF_SCIENCE, _MAX_LINE),
)


def _read_list(reader: ListReader, *pieces: bytes) -> list[ReadItem] | None:
    try:
        return [item for piece in pieces for item in reader.feed(piece)] + reader.end()
    except UnreadableList:
        return None


def native(data: bytes) -> None:
    """A part of a native message is decoded and encoded to the same bytes, or malformed. So is a whole answer."""
    parts: tuple[tuple[Callable[[bytes], Any], Callable[[Any], bytes]], ...] = (
        (decode_filters, encode_filters),
        (decode_site, encode_site),
        (decode_public_key, encode_public_key),
    )
    for decode, encode in parts:
        try:
            assert encode(decode(data)) == data
        except MalformedMessage:
            continue
    # The length of the message is set right. Otherwise hardly any input has it.
    length = max(0, len(data) - ENVELOPE_BYTES).to_bytes(4, "big")
    message = data[: ENVELOPE_BYTES - len(length)] + length + data[ENVELOPE_BYTES:]
    try:
        response = decode_response(message, digest_requested=False)
    except MalformedMessage:
        return
    assert encode_response(response) == message
    if isinstance(response.body, Values):
        read_values(write_json_values(response.body.values))


def native_request(data: bytes) -> None:
    """Any request to the native listener is malformed, or has one answer that can be decoded."""
    length = max(0, len(data) - ENVELOPE_BYTES).to_bytes(4, "big")
    message = data[: ENVELOPE_BYTES - len(length)] + length + data[ENVELOPE_BYTES:]
    try:
        request = read_request(message)
    except MalformedMessage:
        return
    reply = _loop().run_until_complete(_responder().answer(request, Peer("192.0.2.7", "127.0.0.1", 2641)))
    response = decode_response(reply, digest_requested=request.has(OpFlag.REQUEST_DIGEST))
    assert response.envelope.request_id == request.message.envelope.request_id
    assert response.credential is None and response.header.op_code == request.op_code
    assert (response.code == ResponseStatus.SUCCESS) is not isinstance(response.body, AnswerText)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _responder() -> Responder:
    """The responder of a sealed proxy that has the record of 10.1000/182."""
    settings = Settings(store_url="memory:", mode="sealed", native_listen="127.0.0.1:0", resolve="any")
    memory = open_cache(settings)
    values = b'[{"index":1,"type":"URL","data":"https://example.org/"},{"index":2,"type":"EMAIL","data":"a@b.c"}]'
    entry = Entry("10.1000/182", Answer(ResponseCode.SUCCESS, values), _NOW, _NOW + 86_400, _NOW + 10**6)
    memory.memory.keep(entry)
    listener: Any = create(settings, parts=SuppliedParts(cache=memory), clock=lambda: _NOW).listeners["native_listen"]
    found: Responder = listener._responder
    return found


def registry(data: bytes) -> None:
    """Every record of an agency's file is read or refused, alone and in blocks. An archive is read or refused."""
    dates = RecordDates(default=1, latest=2)
    form = detect_format(data)
    blocks = list(cut_blocks([data], 64, len(data) + 1))
    readers: list[BlockReader] = [CrossrefReader(), DataCiteReader(), *_tables(data)]
    for reader in readers:
        findings = Findings()
        for block in blocks:
            reader.read(block, dates, findings)
        assert findings.read == len(findings.records) + findings.refused + findings.drafts, form
        for key, date, _, url in findings.records:
            assert HandleName(key).is_doi and url.strip() == url != "" and 0 <= date <= 2, (key, date, url)
    file = BytesIO(data)
    archive = ArchiveReader(file.read)
    try:
        while (member := archive.next()) is not None:
            assert len(archive.take(member.size)) in (0, member.size)
    except InvalidArchive:
        return


def _tables(data: bytes) -> list[BlockReader]:
    try:
        return [json_values.TableReader(json_values.read_table_form(data.partition(b"\n")[0]))]
    except json_values.InvalidTable:
        return []


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    target.__name__: target
    for target in (
        name,
        finding,
        suggestion,
        parsing,
        answer,
        locations,
        query,
        headers,
        stored,
        block,
        line,
        retry_after,
        lists,
        native,
        native_request,
        bibtex,
        ris,
        registry,
    )
}
