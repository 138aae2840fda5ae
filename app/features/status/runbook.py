"""The runbook: what each alert and each line of `/status` means, what to look at, and what to do."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from markupsafe import Markup, escape

from app.web.languages import Catalogue

RUNBOOK_PATH: Final = "/status/runbook"
#: The texts of lines whose key is not the key of their text.
_TITLES: Final = {key: f"table_{key}" for key in ("requests", "answers", "unverified", "refused", "witnesses")}
_CODE: Final = re.compile("`([^`]*)`")


#: Entries by "alert" or "line", and by the name of the alert or the key of the line: what it `means`, where to `look`,
#: and what to `do`, with code between grave accents.
Runbook = Mapping[str, Mapping[str, Mapping[str, str]]]


@cache
def read_runbook() -> Runbook:
    """The runbook of this release."""
    text = files("app.features.status").joinpath("runbook.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def line_title(texts: Catalogue, key: str) -> str:
    """The name of a line of `/status` in the language of the texts."""
    return str(texts("status." + _TITLES.get(key, key)))


def runbook_facts() -> dict[str, Any]:
    """What the template uses."""
    return {"runbook": read_runbook(), "code": show_code, "line_title": line_title}


def show_code(text: str) -> Markup:
    """A text of the runbook as HTML."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped
