"""What is wrong with a value that pydantic refused, in our own words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

_NOT_WHOLE: Final = "this is not a whole number"
_NOT_A_NUMBER: Final = "this is not a number"
_NOT_A_CHOICE: Final = "write true or false"


def _write(limit: float | str) -> str:
    return limit if isinstance(limit, str) else f"{limit:,.15g}"


#: The message for a kind of error, given the error's context.
_MESSAGES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "int_parsing": lambda _: _NOT_WHOLE,
    "int_from_float": lambda _: _NOT_WHOLE,
    "int_type": lambda _: _NOT_WHOLE,
    "float_parsing": lambda _: _NOT_A_NUMBER,
    "float_type": lambda _: _NOT_A_NUMBER,
    "finite_number": lambda _: "this is not a finite number",
    "bool_parsing": lambda _: _NOT_A_CHOICE,
    "bool_type": lambda _: _NOT_A_CHOICE,
    "string_type": lambda _: "this is not a text",
    "string_unicode": lambda _: "this is not valid Unicode",
    "path_type": lambda _: "this is not the path of a file",
    "missing": lambda _: "this is required",
    "extra_forbidden": lambda _: "this member is not known",
    "json_invalid": lambda context: f"the body is not JSON: {context.get('error', 'it cannot be parsed')}",
    "model_attributes_type": lambda _: "the body is not a JSON object",
    "model_type": lambda _: "the body is not a JSON object",
    "dict_type": lambda _: "this is not a JSON object",
    "list_type": lambda _: "this is not a JSON array",
    "too_long": lambda limits: f"there are too many; the limit is {limits['max_length']}",
    "greater_than": lambda limits: f"the value must be over {_write(limits['gt'])}",
    "greater_than_equal": lambda limits: f"the value must be at least {_write(limits['ge'])}",
    "less_than": lambda limits: f"the value must be under {_write(limits['lt'])}",
    "less_than_equal": lambda limits: f"the value must be at most {_write(limits['le'])}",
    "string_too_short": lambda limits: f"the text is too short; it needs {limits['min_length']} characters",
    "string_too_long": lambda limits: f"the text is too long; the limit is {limits['max_length']} characters",
    "literal_error": lambda limits: f"use one of these: {limits['expected']}",
}


def explain_value(error: Mapping[str, Any]) -> str:
    """What is wrong, given one error of pydantic. Our own validators have written their message themselves."""
    explained = _MESSAGES.get(str(error["type"]))
    if explained is not None:
        return explained(error.get("ctx") or {})
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]
