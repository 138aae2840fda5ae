"""What the program promises to other programs, as plain data: the shapes that a release keeps (docs/releases.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from doi_proxy.assembly.features import load_feature
from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import DoiProxyError
from doi_proxy.features import NAMES
from doi_proxy.features.lists.verdict import ECHO, FIELDS, MATCH_FIELDS, SUGGESTION_FIELDS, Verdict
from doi_proxy.system.options import DEPRECATED
from tests.world.world import World

#: A record with each kind of value that has members of its own.
RECORD: Final = [
    {"index": 1, "type": "URL", "data": {"format": "string", "value": "https://example.org/a"}, "ttl": 86400},
    {"index": 2, "type": "EMAIL", "data": {"format": "base64", "value": "AAEC"}, "ttl": 86400},
    {
        "index": 100,
        "type": "HS_ADMIN",
        "data": {"format": "admin", "value": {"handle": "0.NA/10.5555", "index": 200, "permissions": "111111110010"}},
        "ttl": 86400,
        "timestamp": "2024-01-01T00:00:00Z",
    },
]
HANDLES: Final = (
    "/api/handles/10.5555/record",
    "/api/handles/10.5555/record?type=URL",
    "/api/handles/10.5555/record?type=EMAIL",
    "/api/handles/10.5555/record?type=NONE",
    "/api/handles/10.5555/missing",
    "/api/handles/10.5555/record?index=x",
    "/api/handles/10.5555/record%zz",
    "/doiRA/10.5555/record",
)
#: The HELP of a metric that the next minor release removes begins with this word.
_DEPRECATED: Final = re.compile(r"^# HELP (\w+) Deprecated", re.MULTILINE)
_SAMPLE: Final = re.compile(r"^(\w+)(?:\{(.*?)\})? ")


def read_settings() -> dict[str, str]:
    """The key of each setting in the file."""
    return {name: ".".join(Settings.table_and_key(name)) for name in Settings.model_fields}


def read_problems() -> dict[str, int]:
    """The status of each error, by the token that problem types, headers and metrics have."""
    for name in NAMES:
        load_feature(name)
    return {kind.token: kind.status for kind in sorted(_list_errors(DoiProxyError), key=lambda kind: kind.token)}


def _list_errors(kind: type[DoiProxyError]) -> Iterator[type[DoiProxyError]]:
    yield kind
    for inner in kind.__subclasses__():
        yield from _list_errors(inner)


def read_verdicts() -> dict[str, list[str]]:
    """The verdicts, and the members of a row."""
    return {
        "verdicts": [verdict.value for verdict in Verdict],
        "members": [*FIELDS, *SUGGESTION_FIELDS, *MATCH_FIELDS, ECHO],
    }


def read_answers() -> dict[str, dict[str, Any]]:
    """The shapes of the answers of the REST API, the metrics with their labels, and what is deprecated."""
    with World() as world:
        world.upstream.put("10.5555/record", values=RECORD)
        handles = {target: _describe(world.get(target)) for target in HANDLES}
        world.get("/10.5555/record")
        text = world.get("/metrics").body.decode()
    deprecated = {"settings": sorted(DEPRECATED), "metrics": sorted(_DEPRECATED.findall(text))}
    return {"handles": handles, "metrics": _read_metrics(text), "deprecated": deprecated}


def _describe(reply: Any) -> dict[str, Any]:
    return {"status": reply.status, "type": reply["content-type"], "body": describe_json(json.loads(reply.body))}


def describe_json(value: Any) -> Any:
    """A JSON value with the name of its type in place of each text and number. Of a list, each shape once."""
    if isinstance(value, dict):
        return {name: describe_json(inner) for name, inner in value.items()}
    if isinstance(value, list):
        shapes = [describe_json(inner) for inner in value]
        return [shape for number, shape in enumerate(shapes) if shape not in shapes[:number]]
    return type(value).__name__


def _read_metrics(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if sample := _SAMPLE.match(line):
            labels = re.findall(r'(\w+)="', sample[2] or "")
            found.setdefault(sample[1], sorted(labels))
    return dict(sorted(found.items()))


def list_losses(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """What the old shape has and the new one has not, or otherwise. A new member is no loss."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name, inner in old.items():
            if name in new:
                yield from list_losses(inner, new[name], f"{place}.{name}")
            else:
                yield f"{place}.{name} is gone"
    elif isinstance(old, list) and isinstance(new, list):
        yield from (f"{place}: {one} is gone" for one in old if not any(not list(list_losses(one, it)) for it in new))
    elif old != new:
        yield f"{place} is {new!r}, and was {old!r}"


def read_shapes() -> dict[str, dict[str, Any]]:
    """All of them, each by the name of its file."""
    return {"settings": read_settings(), "problems": read_problems(), "verdicts": read_verdicts(), **read_answers()}
