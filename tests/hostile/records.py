"""Records that a registrant can write to hurt a resolver: the values of each by its name, built when they are needed.

Each function returns the values of one handle as the handle API sends them. `INCLUDED` are handles that a record
of this module includes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

PREFIX: Final = "10.6666"
#: How many handles `many-includes` includes.
INCLUDED: Final = 19
_TARGET: Final = {
    "index": 1,
    "type": "URL",
    "ttl": 86400,
    "data": {"format": "string", "value": "https://example.org/"},
}

Values = list[dict[str, Any]]


def value(index: int, type_: str, text: object, **more: object) -> dict[str, Any]:
    """One handle value."""
    return {"index": index, "type": type_, "ttl": 86400, "data": {"format": "string", "value": text}, **more}


def _dotted_addresses() -> Values:
    """E-mail addresses of 10,000 dots, for a pattern that goes back and forth over them."""
    return [_TARGET, *(value(index, "EMAIL", "a@" + "." * 9_990 + "@") for index in range(2, 22))]


def _list_of_zeros() -> Values:
    """One value that is a list of 1.9 million numbers: 4 MB of JSON."""
    return [_TARGET, value(2, "DESC", [0] * 1_900_000)]


def _many_values() -> Values:
    """As many values as fit into 3.9 MB."""
    return [_TARGET, *(value(index, "DESC", "x") for index in range(2, 42_000))]


def _long_value() -> Values:
    """One text of 3.9 MB."""
    return [_TARGET, value(2, "DESC", "<&\"'" * 975_000)]


def _networks(count: int, second: int = 0) -> str:
    return ", ".join(f"10.{second}.{number >> 8 & 255}.{number & 255}/32" for number in range(count))


def networks_of(second: int) -> Values:
    """60 values of 64 kB, each a location that is chosen by some 4,000 networks."""
    locations = (
        '<locations chooseby="address,weighted"><location href="https://example.org/" addresses="{}"/></locations>'
    )
    text = locations.format(_networks(3_600, second))
    return [value(index, "10320/loc", text) for index in range(1, 61)]


def _many_includes() -> Values:
    """A short record that includes the locations of other handles, all of them long."""
    handles = " ".join(f"{PREFIX}/included-{number}" for number in range(INCLUDED))
    return [_TARGET, value(2, "10320/loc", f'<locations include="{handles}"/>')]


def _many_locations() -> Values:
    """60,000 locations in one value."""
    locations = '<location href="https://example.org/" weight="1"/>' * 60_000
    return [_TARGET, value(2, "10320/loc", f"<locations>{locations}</locations>")]


def _deep_xml() -> Values:
    """Elements within elements, 200,000 of them."""
    return [_TARGET, value(2, "10320/loc", "<a>" * 200_000 + "</a>" * 200_000)]


def _many_attributes() -> Values:
    """100,000 attributes of one element."""
    attributes = " ".join(f'a{number}="x"' for number in range(100_000))
    return [
        _TARGET,
        value(2, "10320/loc", f'<locations><location href="https://example.org/" {attributes}/></locations>'),
    ]


def _deep_json() -> Values:
    """Lists within lists."""
    data: Any = "end"
    for _ in range(200):
        data = [data]
    return [_TARGET, *(value(index, "DESC", data) for index in range(2, 2_000))]


def _long_ttl() -> Values:
    """A time to live of 400 digits."""
    return [{**_TARGET, "ttl": int("9" * 400)}]


RECORDS: Final[dict[str, Callable[[], Values]]] = {
    "dotted-addresses": _dotted_addresses,
    "list-of-zeros": _list_of_zeros,
    "many-values": _many_values,
    "long-value": _long_value,
    "many-includes": _many_includes,
    "many-locations": _many_locations,
    "many-attributes": _many_attributes,
    "deep-xml": _deep_xml,
    "deep-json": _deep_json,
    "long-ttl": _long_ttl,
    **{f"included-{number}": partial(networks_of, number) for number in range(INCLUDED)},
}


def by_address(network: str, inside: str, outside: str) -> Values:
    """A record that sends the clients of a network to one place and all others to another."""
    campus = f'<location href="{inside}" addresses="{network}" weight="0"/>'
    others = f'<location href="{outside}" weight="1"/>'
    return [value(1, "10320/loc", f'<locations chooseby="address,weighted">{campus}{others}</locations>')]
