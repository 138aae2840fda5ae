"""Values of settings as people write them: durations, sizes and lists, each with its type for pydantic."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, PlainSerializer
from pydantic.fields import FieldInfo

#: The longest number of a duration or a size, in characters.
_MAX_TEXT: Final = 40
_DURATION: Final = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)[ ]*(ms|s|m|h|d|)")
_SECONDS: Final = {"d": Decimal(86_400), "h": Decimal(3_600), "m": Decimal(60), "s": Decimal(1), "ms": Decimal("0.001")}
_SIZE: Final = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)[ ]*(?:([KMGT])(?:i?B)?|B|)", re.IGNORECASE)
#: Powers of 1024, as nginx and systemd have them.
_BYTES: Final = {"T": 1024**4, "G": 1024**3, "M": 1024**2, "K": 1024}

_NOT_A_DURATION: Final = (
    "this is not a duration; write seconds as a number, or a number and a unit, such as 500ms, 10s, 15m, 12h or 30d"
)
_NOT_A_SIZE: Final = (
    "this is not a size; write bytes as a whole number, or a number and a unit, such as 64K, 256M, 1.5G or 2T"
)
_NOT_A_LIST: Final = (
    "this is not a list; separate its items by commas, or in a TOML file write an array of texts, such as "
    '["first", "second"]'
)


def read_duration(value: Any) -> Any:
    """Seconds, given a number, or a text such as `1.8s`, `15m` or `30d`. Raises ValueError.

    Another type, such as a boolean, is refused too.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= _MAX_TEXT else None
    if found is None:
        raise ValueError(_NOT_A_DURATION)
    return float(Decimal(found[1]) * _SECONDS[found[2] or "s"])


def write_duration(seconds: float) -> str:
    """The shortest form with one unit that reads back as the same number of seconds, such as `30d` or `1.8s`."""
    # repr, because Decimal(1.8) has the digits of the binary fraction.
    exact = Decimal(repr(seconds))
    unit = next((unit for unit in ("d", "h", "m") if exact and exact % _SECONDS[unit] == 0), "s")
    return f"{_plain(exact / _SECONDS[unit])}{unit}"


def read_size(value: Any) -> Any:
    """Bytes, given a whole number, or a text such as `256M` or `1.5G` (powers of 1024). Raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= _MAX_TEXT else None
    if found is None:
        raise ValueError(_NOT_A_SIZE)
    exact = Decimal(found[1]) * _BYTES.get((found[2] or "").upper(), 1)
    if exact != int(exact):
        raise ValueError("this is not a whole number of bytes; write a size such as 1536K or 1.5M")
    return int(exact)


def write_size(size: int) -> str:
    """The form with the largest unit that divides it, such as `256M`."""
    unit = next((unit for unit, factor in _BYTES.items() if size and size % factor == 0), "")
    return f"{size // _BYTES.get(unit, 1)}{unit}"


def read_text_list(value: Any) -> Any:
    """The items of a list: an array, or a text that separates them by commas. Blanks around an item do not count."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(_NOT_A_LIST)
    items = tuple(item.strip() for item in value)
    for item in items:
        if "," in item:
            raise ValueError(f"the item {item[:80]!r} has a comma; write each item of the array as a text of its own")
    return tuple(item for item in items if item)


def write_list(items: Iterable[str]) -> str:
    """A list as one text, for an environment variable or a flag."""
    return ",".join(items)


def write_value(value: Any) -> str:
    """A value of a setting as text, given what `model_dump(mode="json")` has for it: for a variable, a flag, a page."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return _plain(Decimal(repr(value)))
    return write_list(value) if isinstance(value, list | tuple) else str(value)


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True, slots=True)
class WrittenForm:
    """Marks the type of a setting whose value has a written form."""

    kind: Literal["duration", "size", "list"]
    write: Callable[[Any], str]


def find_form(field: FieldInfo) -> WrittenForm | None:
    """The written form of a setting. None if it is read as any number or text."""
    return next((mark for mark in field.metadata if isinstance(mark, WrittenForm)), None)


def write_default(field: FieldInfo) -> str:
    """The default of a setting as people write it. Empty if it follows from another setting."""
    if field.default_factory is not None:
        return ""
    if field.default in (None, ()):
        return "not set by default"
    form = find_form(field)
    return f"default {(write_value if form is None else form.write)(field.default)}"


#: Seconds.
Duration = Annotated[
    float,
    BeforeValidator(read_duration),
    PlainSerializer(write_duration, return_type=str, when_used="json"),
    WrittenForm("duration", write_duration),
]
#: Bytes.
Size = Annotated[
    int,
    BeforeValidator(read_size),
    PlainSerializer(write_size, return_type=str, when_used="json"),
    WrittenForm("size", write_size),
]
TextList = Annotated[tuple[str, ...], BeforeValidator(read_text_list), WrittenForm("list", write_list)]
