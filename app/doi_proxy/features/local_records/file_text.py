"""The text of a file of local records, read into records and problems (TOML 1.0).

A line that begins with `[[record]]` begins a record, even within a string of several lines. Each record is read alone.
So a problem has a line and a column, and one bad record does not hide the next problem.

A line that begins with `{"doi":` is a record of an import: `{"doi":"10.1000/1","values":[…]}`. The copy of the last
good text has lines of both kinds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any, Final

import msgspec

from doi_names.errors import InvalidName
from doi_names.name import HandleName, fold
from doi_proxy.features.local_records import records
from doi_proxy.resolver.resolution import Tombstone
from doi_proxy.resolver.target import MAX_REDIRECT_TARGET_BYTES, SCHEMES, web_target
from doi_proxy.system.toml_text import (
    Block,
    FileProblem,
    WrongTable,
    check_keys,
    parse_table,
    parse_toml,
    read_block,
    read_string,
    split_tables,
)
from handle_protocol.errors import UnusableAnswer
from handle_protocol.referral import Answer, ResponseCode
from handle_protocol.value import read_values

#: Characters of one record. The `values` of a record are at most about 1 MiB upstream too.
MAX_RECORD_CHARACTERS: Final = 1024 * 1024

_PREFIX: Final = re.compile(r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_SCHEME: Final = re.compile(r"(?:doi|info|https?|hdl):", re.IGNORECASE)
#: The host of a URL (RFC 3986, section 3.2.2).
_HOST: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?(\[[0-9A-Fa-f:.]+\]|[^/?#:@\s\[\]]+)(?=[/?#:]|$)")
_TOMBSTONE: Final = '{ reason = "Withdrawn.", date = 2026-03-01 }'
_UPSTREAM: Final = re.compile(rf"(?={_HOST.pattern})https?://[^?#\s]+")
_STRING: Final = re.compile(".*", re.DOTALL)

#: How the line of a record begins that an import wrote.
IMPORT_START: Final = '{"doi":'
_IMPORTED: Final = re.compile(rf"^({re.escape(IMPORT_START)}.*\n?)", re.MULTILINE)


class _Imported(msgspec.Struct, forbid_unknown_fields=True):
    """A record of a handle server, which an import wrote."""

    doi: str
    values: msgspec.Raw


_imported: Final = msgspec.json.Decoder(_Imported)


def read_records(text: str, file: str) -> Iterator[records.LocalRecord | FileProblem]:
    """The records of a file in their order, and a problem for each record that cannot be used."""
    for table in split_tables(text, file, "record"):
        line = table.line
        for piece in _IMPORTED.split(table.text):
            block = Block(table.name if line == table.line else "", piece, file, line)
            line += piece.count("\n")
            if piece.startswith(IMPORT_START):
                yield read_block(block, _read_imported)
            elif block.name:
                yield read_block(block, _read_record)
            elif problem := read_block(block, _require_nothing):
                yield problem


def _require_nothing(block: Block) -> None:
    """Refuse what is before the first record: only comments and empty lines may be there."""
    if keys := list(parse_toml(block.text)):
        raise WrongTable(f"{keys[0]!r} is outside a record; begin each record with [[record]]", keys[0])


# --- One record ---------------------------------------------------------------------------------------------------


def _read_record(block: Block) -> records.LocalRecord:
    if len(block.text) > MAX_RECORD_CHARACTERS:
        raise WrongTable(f"the record is longer than {MAX_RECORD_CHARACTERS} characters")
    table = parse_table(block, "part of a record")
    check_keys(table, KEYS, "a record has")
    action = _name_of_action(table)
    is_prefix = "prefix" in table
    if is_prefix:
        subject = read_string(table, "prefix", _PREFIX, "a prefix such as 10.5072")
    else:
        subject = _read_name(table, "doi").text
    if "note" in table:
        read_string(table, "note", _STRING, "a string")
    if action == "alias" and fold(read_string(table, action, _STRING, "a string")) == fold(subject):
        raise WrongTable("alias is the name itself", action)
    allows_detour = _read_library(table, action)
    return records.LocalRecord(
        subject, is_prefix, _ACTIONS[action](table), _read_until(table), block.file, block.line, allows_detour
    )


def _read_imported(block: Block) -> records.LocalRecord:
    try:
        found = _imported.decode(block.text)
    except (ValueError, RecursionError) as error:
        raise WrongTable(f"the line is not a record of an import: {str(error)[:200]}") from error
    subject = _read_name({"doi": found.doi}, "doi").text
    answer = _read_json_values(bytes(found.values))
    return records.LocalRecord(subject, False, answer, math.inf, block.file, block.line)


def _name_of_action(table: Mapping[str, Any]) -> str:
    names = [name for name in table if name in _ACTIONS]
    if len(names) != 1:
        found = " and ".join(names) if names else "none of them"
        raise WrongTable(
            f"a record has exactly one of {', '.join(_ACTIONS)}; this one has {found}", names[-1] if names else None
        )
    if ("doi" in table) == ("prefix" in table):
        raise WrongTable("a record has either doi or prefix", "prefix" if "prefix" in table else None)
    # What a record can do for a prefix alone.
    if names[0] in {"upstream", "deny"} and "doi" in table:
        raise WrongTable(f"{names[0]} is for a prefix; write prefix in place of doi", "doi")
    return names[0]


def _read_name(table: Mapping[str, Any], key: str) -> HandleName:
    text = read_string(table, key, _STRING, "a string")
    if _SCHEME.match(text) or text != text.strip():
        raise WrongTable(f"{key} is not a bare DOI name; write it without https://doi.org/, doi: and white space", key)
    try:
        name = HandleName(text)
    except InvalidName as error:
        raise WrongTable(f"{key}: {error.message}", key) from error
    if name.suffix is None and not name.is_prefix:
        raise WrongTable(f"{key} is not a DOI name; a DOI name begins with 10. and has a slash after its prefix", key)
    return name


def _read_until(table: Mapping[str, Any]) -> float:
    """When the record ends, in seconds since the epoch. A date includes its whole day in UTC."""
    until = table.get("until")
    if until is None:
        return math.inf
    if isinstance(until, datetime):
        return (until if until.tzinfo else until.replace(tzinfo=UTC)).timestamp()
    if not isinstance(until, date):
        raise WrongTable("until is not a date; write it without quotes, such as 2027-12-31", "until")
    return datetime(until.year, until.month, until.day, tzinfo=UTC).timestamp() + 86_400.0


def _read_library(table: Mapping[str, Any], action: str) -> bool:
    """Whether library copy applies to the redirect."""
    value = table.get("library", True)
    if not isinstance(value, bool):
        raise WrongTable("library is not true or false; write it without quotes", "library")
    # The actions that library copy concerns. An alias leads to another name, whose own record decides.
    if "library" in table and action not in {"target", "values"}:
        raise WrongTable(f"library has no effect with {action}; it is for target and values", "library")
    return value


# --- The actions --------------------------------------------------------------------------------------------------


def _read_target(table: Mapping[str, Any]) -> records.LocalAnswer | records.TargetTemplate:
    target = read_string(table, "target", _STRING, "a string").strip()
    if _CONTROL.search(target):
        raise WrongTable("target contains a control character", "target")
    if web_target(target) is None:
        schemes = ", ".join(sorted(SCHEMES))
        raise WrongTable(f"target is not a URL of {schemes} with at most {MAX_REDIRECT_TARGET_BYTES} bytes", "target")
    if not target.lower().startswith("mailto:") and not _host(target):
        raise WrongTable("target has no host name", "target")
    if "prefix" not in table or not any(
        placeholder in target for placeholder in (records.DOI_PLACEHOLDER, records.SUFFIX_PLACEHOLDER)
    ):
        return records.LocalAnswer(records.answer_of_value("URL", target))
    if _host(records.fill_target(target, HandleName("10.1/x"))) != _host(target):
        raise WrongTable("target has a placeholder in its host name; use it in the path or the query", "target")
    return records.TargetTemplate(target)


def _host(url: str) -> str | None:
    found = _HOST.match(url)
    return found[1] if found else None


def _read_tombstone(table: Mapping[str, Any]) -> records.LocalAnswer:
    stone = table["tombstone"]
    if not isinstance(stone, dict):
        raise WrongTable(f"tombstone is not a table; write {_TOMBSTONE}", "tombstone")
    if missing := [key for key in ("reason", "date") if key not in stone]:
        raise WrongTable(f"tombstone has no {' and no '.join(missing)}; write {_TOMBSTONE}", "tombstone")
    if unknown := [key for key in stone if key not in ("reason", "date")]:
        raise WrongTable(f"tombstone has the unknown key {unknown[0][:60]!r}; write {_TOMBSTONE}", "tombstone")
    day = stone["date"]
    if not isinstance(day, date):
        raise WrongTable(
            "the date of tombstone is not a date; write it without quotes, such as 2026-03-01", "tombstone"
        )
    reason = _read_reason(stone["reason"], "tombstone")
    # The length of a date in ISO 8601, which is also the beginning of a date with a time.
    return records.LocalAnswer(
        Answer(ResponseCode.HANDLE_NOT_FOUND), Tombstone(reason, day.isoformat()[: len("2026-03-01")])
    )


def _read_reason(reason: Any, key: str) -> str:
    if not isinstance(reason, str) or not 0 < len(reason.strip()) <= 1_000 or _CONTROL.search(reason):
        raise WrongTable(f"{key} needs a reason: one line of at most 1000 characters", key)
    return reason.strip()


def _read_alias(table: Mapping[str, Any]) -> records.LocalAnswer:
    alias = _read_name(table, "alias").text
    return records.LocalAnswer(records.answer_of_value("HS_ALIAS", alias), alias=alias)


def _read_values(table: Mapping[str, Any]) -> records.LocalAnswer:
    """The values as TOML tables, or as the text of the JSON array that the REST API has in `values`."""
    given = table["values"]
    if isinstance(given, str):
        return _read_json_values(given.encode())
    if given == []:
        raise WrongTable("values is empty; use tombstone for a name that is gone", "values")
    try:
        encoded = msgspec.json.encode(given)
    except (ValueError, TypeError, RecursionError) as error:
        raise WrongTable(f"values is not JSON: {error}", "values") from error
    return _read_json_values(encoded, are_own=True)


def _read_json_values(encoded: bytes, *, are_own: bool = False) -> records.LocalAnswer:
    """The values as JSON. With `are_own`, an operator wrote them, and each member can be read."""
    try:
        values = msgspec.json.format(encoded, indent=-1)
        record = read_values(values)
    except UnusableAnswer as error:
        raise WrongTable(
            f"values is not a handle record of the REST API: {error.detail or error.message}", "values"
        ) from error
    except (ValueError, RecursionError) as error:
        raise WrongTable(f"values is not JSON: {error}", "values") from error
    unread = next((f"{name} of the value {value.index}" for value in record.values for name in value.unread), None)
    if unread is not None and are_own:
        raise WrongTable(f"values: {unread} cannot be read", "values")
    # A name whose values are all private exists (RFC 3651, section 3.1). As JSON text, "[]" says so on purpose.
    code = ResponseCode.SUCCESS if record.values else ResponseCode.VALUES_NOT_FOUND
    return records.LocalAnswer(Answer(code, values))


def _read_route(table: Mapping[str, Any]) -> records.Route:
    url = read_string(table, "upstream", _UPSTREAM, "the base URL of a handle API, such as https://handle.example.org")
    if "until" in table:
        raise WrongTable("a record with upstream cannot have until", "until")
    return records.Route(url)


_ACTIONS: Final[
    dict[
        str,
        Callable[[Mapping[str, Any]], records.LocalAnswer | records.TargetTemplate | records.Route | records.Denial],
    ]
] = {
    "target": _read_target,
    "tombstone": _read_tombstone,
    "alias": _read_alias,
    "values": _read_values,
    "upstream": _read_route,
    "deny": lambda table: records.Denial(_read_reason(table["deny"], "deny")),
}
#: What a record may have.
KEYS: Final = tuple(sorted({"doi", "prefix", "note", "until", "library", *_ACTIONS}))
