"""Why a setting cannot be used, in words for an operator, without messages of pydantic and regular expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from pydantic.fields import FieldInfo

from doi_proxy.endpoints.invalid_values import explain_value
from doi_proxy.system.setting_values import find_form

_URL: Final = "a URL begins with http:// or https:// and has no blank, `?` or `#`"
#: What a setting with a pattern accepts.
_FORMS: Final[Mapping[str, str]] = {
    "public_url": f"this is not a URL; {_URL}, such as https://doi.example.org",
    "upstream_contact": "this is not a contact; write an e-mail address such as library@example.org, or a URL such as "
    "https://library.example.org",
    "otel_endpoint": f"this is not a URL; {_URL} or `@`, such as http://127.0.0.1:4318/v1/traces",
}
_NOT_A_SWITCH: Final = "write on or off"
#: The limits of a number, by the names that pydantic gives them.
_LIMITS: Final = frozenset({"gt", "ge", "lt", "le"})
#: What a setting says in place of the words for any value.
_KINDS: Final[Mapping[str, str]] = {
    "string_type": "this is not a text; in a TOML file, put it in quotation marks",
    "bool_parsing": _NOT_A_SWITCH,
    "bool_type": _NOT_A_SWITCH,
}
EMPTY: Final = "the value is empty; remove the setting to use its default"


def explain_setting_error(
    error: Mapping[str, Any], known: Mapping[str, FieldInfo], write_name: Callable[[str], str]
) -> str:
    """What is wrong with a setting, and what to do.

    `error` is one error of pydantic. `known` has the fields of all settings. `write_name` writes the name of a setting
    as its source does, for the suggestion of a similar name.
    """
    name = str(error["loc"][0]) if error["loc"] else ""
    kind = str(error["type"])
    if kind == "extra_forbidden":
        similar = get_close_matches(name, known, n=1, cutoff=0.7)
        return "there is no such setting" + (f"; did you mean {write_name(similar[0])}?" if similar else "")
    if kind == "string_pattern_mismatch" and name in _FORMS:
        return _FORMS[name]
    if kind in ("string_too_short", "too_short") and error["ctx"]["min_length"] == 1:
        return EMPTY
    return _KINDS.get(kind) or explain_value(_write_limits(error, known.get(name)))


def _write_limits(error: Mapping[str, Any], field: FieldInfo | None) -> Mapping[str, Any]:
    """The error with its limits in the written form of the setting, such as `3650d`."""
    form = None if field is None else find_form(field)
    context = error.get("ctx") or {}
    if form is None:
        return error
    return {**error, "ctx": {key: form.write(value) for key, value in context.items() if key in _LIMITS}}
