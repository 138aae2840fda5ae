"""Why a setting cannot be used, in words for an operator, without messages of pydantic and regular expressions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any, Final

_URL: Final = "a URL begins with http:// or https:// and has no blank, `?` or `#`"
#: What a setting with a pattern accepts.
_FORMS: Final[Mapping[str, str]] = {
    "public_url": f"this is not a URL; {_URL}, such as https://doi.example.org",
    "upstream_url": f"this is not a list of URLs; {_URL}, such as https://doi.org; "
    "or write hdl: or hdl://host:port. Separate several by blanks",
    "upstream_routes": "this is not a list of routes; write PREFIX=URL, such as 10.5072=https://handle.test.example. "
    f"Separate several by blanks; {_URL}",
    "record_headers": "this is not a list of header names; write names such as Link, Content-Language",
}
#: The message for a kind of error, given the error's context.
_KINDS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "int_parsing": lambda _: "this is not a whole number",
    "int_from_float": lambda _: "this is not a whole number",
    "int_type": lambda _: "this is not a whole number",
    "float_parsing": lambda _: "this is not a number",
    "float_type": lambda _: "this is not a number",
    "finite_number": lambda _: "this is not a finite number",
    "bool_parsing": lambda _: "write true or false",
    "bool_type": lambda _: "write true or false",
    "string_type": lambda _: "this is not a text; in a TOML file, put it in quotation marks",
    "path_type": lambda _: "this is not the path of a file",
    "greater_than": lambda limits: f"the value must be over {limits['gt']:g}",
    "greater_than_equal": lambda limits: f"the value must be at least {limits['ge']:g}",
    "less_than": lambda limits: f"the value must be under {limits['lt']:g}",
    "less_than_equal": lambda limits: f"the value must be at most {limits['le']:g}",
    "string_too_short": lambda limits: (
        "the value is empty; remove the setting to use its default"
        if limits["min_length"] == 1
        else f"the text is too short; it needs {limits['min_length']} characters"
    ),
    "string_too_long": lambda limits: f"the text is too long; the limit is {limits['max_length']} characters",
    "literal_error": lambda limits: f"use one of these: {limits['expected']}",
}


def explain(error: Mapping[str, Any], known: Collection[str], write_name: Callable[[str], str]) -> str:
    """What is wrong with a setting, and what to do.

    `error` is one error of pydantic. `known` has the names of all settings. `write_name` writes the name of a setting
    as its source does, for the suggestion of a similar name.
    """
    name = str(error["loc"][0]) if error["loc"] else ""
    kind = str(error["type"])
    if kind == "extra_forbidden":
        similar = get_close_matches(name, known, n=1, cutoff=0.7)
        return "there is no such setting" + (f"; did you mean {write_name(similar[0])}?" if similar else "")
    if kind == "string_pattern_mismatch" and name in _FORMS:
        return _FORMS[name]
    if kind in _KINDS:
        return _KINDS[kind](error.get("ctx") or {})
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]
