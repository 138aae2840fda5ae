"""The runbook of the manual: what an alert means, what to look at, and what to do.

`doi-proxy runbook` prints it without a running service. `/runbook/ALERT` is where the links of the alerts lead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse

from doi_proxy.endpoints import no_file, text_headers
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.setup.installation import read_manual_page
from doi_proxy.system.options import MAX_SHOWN
from doi_proxy.web.freshness import STATIC_FILE
from doi_proxy.web.redirect import Face

_ENTRY: Final = re.compile(r"^### (.+)$", re.MULTILINE)
#: A row about a line of the status page: the line, what it means, what to look at, and what to do.
_ROW: Final = re.compile(r"^\| (.+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)


def read_entries() -> Mapping[str, str]:
    """The entries of the runbook by their title in small letters, such as `doiproxydown`: Markdown with the title."""
    entries: dict[str, str] = {}
    alerts, _, lines = read_manual_page("runbook").partition("## Lines of the status page\n")
    for part in re.split(r"^(?=###)", alerts, flags=re.MULTILINE):
        found = _ENTRY.match(part)
        if found:
            entries[found[1].lower()] = part.strip() + "\n"
    # After the head of the table.
    for title, meaning, look, do in _ROW.findall(lines)[2:]:
        entries[title.lower()] = f"### {title}\n\n{meaning}\n\n- **Look at:** {look}\n- **Do:** {do}\n"
    return entries


def add_runbook(app: FastAPI, face: Face) -> None:
    """Answer `/runbook/ALERT` with its entry."""

    @app.api_route("/runbook/{entry}", methods=["GET", "HEAD"], include_in_schema=False)
    async def show_entry(entry: str, request: Request) -> Response:
        text = read_entries().get(entry.lower())
        if text is None:
            return no_file(face, request)
        return PlainTextResponse(text, headers=text_headers(STATIC_FILE))


def print_runbook(title: str | None, page: str | None) -> int:
    """Print an entry, or a page. Raises ConfigurationError."""
    if title is None:
        name = page or "runbook"
        try:
            text = read_manual_page(name) if re.fullmatch("[a-z-]+", name) else ""
        except OSError:
            text = ""
        problem = f"--page {name[:MAX_SHOWN]}: the manual has no such page; `doi-proxy runbook --page index` lists them"
    elif page is not None:
        raise ConfigurationError("--page prints a whole page; leave out the alert")
    else:
        entries = read_entries()
        text = entries.get(title.lower(), "")
        similar = get_close_matches(title.lower(), entries, n=1)
        hint = f"did you mean {similar[0]}?" if similar else "doi-proxy runbook prints all entries"
        problem = f"{title[:MAX_SHOWN]}: the runbook has no such entry; {hint}"
    if not text:
        raise ConfigurationError(problem)
    print(text, end="")
    return 0
