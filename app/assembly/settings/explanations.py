"""Why a setting cannot be used, in words for an operator, without messages of pydantic and regular expressions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any, Final

from app.features.invalid_values import explain_value

_URL: Final = "a URL begins with http:// or https:// and has no blank, `?` or `#`"
#: What a setting with a pattern accepts.
_FORMS: Final[Mapping[str, str]] = {
    "public_url": f"this is not a URL; {_URL}, such as https://doi.example.org",
    "upstream_url": f"this is not a list of URLs; {_URL}, such as https://doi.org; "
    "or write hdl: or hdl://host:port. Separate several by blanks",
    "upstream_routes": "this is not a list of routes; write PREFIX=URL, such as 10.5072=https://handle.test.example. "
    f"Separate several by blanks; {_URL}",
    "upstream_contact": "this is not a contact; write a URL such as https://library.example.org, or "
    "mailto:library@example.org",
    "otel_endpoint": f"this is not a URL; {_URL} or `@`, such as http://127.0.0.1:4318/v1/traces",
    "record_headers": "this is not a list of header names; write names such as Link, Content-Language",
}
#: What a setting says in place of the words for any value.
_KINDS: Final[Mapping[str, str]] = {
    "string_type": "this is not a text; in a TOML file, put it in quotation marks",
}
_EMPTY: Final = "the value is empty; remove the setting to use its default"


def explain_setting_error(error: Mapping[str, Any], known: Collection[str], write_name: Callable[[str], str]) -> str:
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
    if kind == "string_too_short" and error["ctx"]["min_length"] == 1:
        return _EMPTY
    return _KINDS.get(kind) or explain_value(error)
