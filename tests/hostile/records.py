"""Records that a registrant can write to harm a resolver: functions by name that build the values.

Each function returns the values of one handle as the handle API sends them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tests.values import value

PREFIX: Final = "10.6666"
#: The number of handles that `many-includes` includes.
INCLUDED: Final = 19
_TARGET: Final = {
    "index": 1,
    "type": "URL",
    "ttl": 86400,
    "data": {"format": "string", "value": "https://example.org/"},
}

Values = list[dict[str, Any]]


def _dotted_addresses() -> Values:
    """E-mail addresses of 10,000 dots, for a pattern that backtracks."""
    return [_TARGET, *(value(index, "EMAIL", "a@" + "." * 9_990 + "@") for index in range(2, 22))]


def _list_of_zeros(count: int) -> Values:
    """One value that is a list of numbers, two bytes of JSON each."""
    return [_TARGET, value(2, "DESC", [0] * count)]


def _many_values(count: int) -> Values:
    """Short values, some 95 bytes of JSON each."""
    return [_TARGET, *(value(index, "DESC", "x") for index in range(2, count))]


def _long_value(count: int) -> Values:
    """One text of characters that HTML escapes, five bytes of JSON for four of them."""
    return [_TARGET, value(2, "DESC", "<&\"'" * count)]


def _networks(count: int, second: int = 0) -> str:
    return ", ".join(f"10.{second}.{number >> 8 & 255}.{number & 255}/32" for number in range(count))


def networks_of(second: int, values: int) -> Values:
    """Values of 64 kB, each a location that is chosen by 3,600 networks."""
    locations = (
        '<locations chooseby="address,weighted"><location href="https://example.org/" addresses="{}"/></locations>'
    )
    text = locations.format(_networks(3_600, second))
    return [value(index, "10320/loc", text) for index in range(1, values + 1)]


def _many_includes(kind: str) -> Values:
    """A short record that includes the locations of other handles, all of them long."""
    handles = " ".join(f"{PREFIX}/{kind}-{number}" for number in range(INCLUDED))
    return [_TARGET, value(2, "10320/loc", f'<locations include="{handles}"/>')]


def _many_locations(count: int) -> Values:
    """Locations in one value, 50 bytes each."""
    locations = '<location href="https://example.org/" weight="1"/>' * count
    return [_TARGET, value(2, "10320/loc", f"<locations>{locations}</locations>")]


def _deep_xml(depth: int) -> Values:
    """Elements within elements, seven bytes each."""
    return [_TARGET, value(2, "10320/loc", "<a>" * depth + "</a>" * depth)]


def _many_attributes(count: int) -> Values:
    """Attributes of one element, some ten bytes each."""
    attributes = " ".join(f'a{number}="x"' for number in range(count))
    location = f'<location href="https://example.org/" {attributes}/>'
    return [_TARGET, value(2, "10320/loc", f"<locations>{location}</locations>")]


def _deep_json(count: int) -> Values:
    """Values that are each a list within 200 lists."""
    return [_TARGET, *(value(index, "DESC", _nested(200, "end")) for index in range(2, count))]


def _nested(depth: int, inner: object) -> object:
    """Lists within lists."""
    for _ in range(depth):
        inner = [inner]
    return inner


def _lists(values: int, item: object, count: int) -> Values:
    """Values that are each a list of so many items."""
    return [_TARGET, *(value(index, "DESC", [item] * count) for index in range(2, 2 + values))]


def _long_list_at_depth(depth: int, count: int) -> Values:
    """A list of numbers within lists."""
    return [_TARGET, value(2, "DESC", _nested(depth, [0] * count))]


def _linked_types(count: int) -> Values:
    """Values with a type and a text that both are names, of characters that are escaped in URLs and in HTML."""
    return [_TARGET, *(value(index, "10.1/é", "10.1/" + "é'" * 60) for index in range(2, count))]


def _usual_locations(count: int) -> Values:
    """Values with one location each."""
    text = '<locations><location href="https://example.org/"/></locations>'
    return [_TARGET, *(value(index, "10320/loc", text) for index in range(2, count))]


def _filled(piece: str, values: int = 3, characters: int = 65_000) -> Values:
    """Values of `characters`, each of one repeated piece of XML."""
    text = "<locations>" + piece * (characters // len(piece)) + "</locations>"
    return [_TARGET, *(value(index, "10320/loc", text) for index in range(2, 2 + values))]


def _long_ttl() -> Values:
    """A time to live of 400 digits."""
    return [{**_TARGET, "ttl": int("9" * 400)}]


#: Each is just below a limit that a resolver may have: 256 KiB, 1 MiB or 4 MiB of JSON, 128 or 256 KiB of XML.
RECORDS: Final[dict[str, Callable[[], Values]]] = {
    "dotted-addresses": _dotted_addresses,
    "list-of-zeros": partial(_list_of_zeros, 1_900_000),
    "list-of-zeros-1m": partial(_list_of_zeros, 500_000),
    "list-of-zeros-256k": partial(_list_of_zeros, 130_900),
    "many-values": partial(_many_values, 42_000),
    "many-values-1m": partial(_many_values, 10_000),
    "many-values-5000": partial(_many_values, 4_999),
    "many-values-1000": partial(_many_values, 999),
    "long-value": partial(_long_value, 780_000),
    "long-value-1m": partial(_long_value, 200_000),
    "long-value-256k": partial(_long_value, 52_000),
    "many-includes": partial(_many_includes, "included"),
    "many-includes-256k": partial(_many_includes, "included-256k"),
    "many-locations": partial(_many_locations, 60_000),
    "many-locations-256k": partial(_many_locations, 4_800),
    "many-attributes": partial(_many_attributes, 100_000),
    "many-attributes-256k": partial(_many_attributes, 20_000),
    "deep-xml": partial(_deep_xml, 200_000),
    "deep-xml-256k": partial(_deep_xml, 36_000),
    "deep-json": partial(_deep_json, 1_800),
    "deep-json-256k": partial(_deep_json, 540),
    "nested-lists": partial(_lists, 30, [[]], 3_000),
    "nested-lists-750k": partial(_lists, 1, [[]], 150_000),
    "nested-lists-256k": partial(_lists, 1, [[]], 52_000),
    "long-list-at-depth-400": partial(_long_list_at_depth, 400, 100_000),
    "linked-types": partial(_linked_types, 2_500),
    "linked-types-1m": partial(_linked_types, 2_000),
    "linked-types-256k": partial(_linked_types, 980),
    "usual-locations": partial(_usual_locations, 4_000),
    "usual-locations-256k": partial(_usual_locations, 1_770),
    "empty-locations": partial(_filled, "<location/>"),
    "empty-locations-128k": partial(_filled, "<location/>", 3, 32_000),
    "locations-with-links": partial(_filled, '<location href="http://a/é" rel="x" country="gb" language="x"/>'),
    "wide-networks": partial(
        _filled, f'<location href="http://a/" addresses="{",".join(["2001:db8::/32"] * 4_500)}"/>'
    ),
    "wrong-networks": partial(_filled, f'<location addresses="{"1:2:3:4:5:6:7:8:9," * 100}"/>'),
    "templates": partial(_filled, '<location rel="x" href_template="http://a/' + "{hdl}" * 600 + '"/>'),
    "entities": partial(_filled, '<location href="http://a/' + "&lt;" * 3_000 + '"/>'),
    "long-ttl": _long_ttl,
    **{f"included-{number}": partial(networks_of, number, 60) for number in range(INCLUDED)},
    **{f"included-256k-{number}": partial(networks_of, number, 3) for number in range(INCLUDED)},
}
#: The records that a client requests, without those that they include.
ASKED_FOR: Final = tuple(name for name in RECORDS if not name.startswith("included-"))


def by_address(network: str, inside: str, outside: str) -> Values:
    """A record with one target for the clients of a network, and another for all others."""
    campus = f'<location href="{inside}" addresses="{network}" weight="0"/>'
    others = f'<location href="{outside}" weight="1"/>'
    return [value(1, "10320/loc", f'<locations chooseby="address,weighted">{campus}{others}</locations>')]
