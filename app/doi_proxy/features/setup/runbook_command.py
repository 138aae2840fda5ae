"""`doi-proxy runbook`: prints an entry of the runbook, or a page of the manual, without a running service."""

from __future__ import annotations

import re
from difflib import get_close_matches

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.setup.runbook import read_entries
from doi_proxy.features.setup.sizing import read_manual_page
from doi_proxy.system.options import MAX_SHOWN


def print_runbook(entry: str | None, page: str | None) -> int:
    """Print an entry, or a page. Raises ConfigurationError."""
    if page is not None and entry is not None:
        raise ConfigurationError("--page prints a whole page; leave out the alert")
    print(_read_page(page or "runbook") if entry is None else _find_entry(entry), end="")
    return 0


def _find_entry(title: str) -> str:
    entries = read_entries()
    text = entries.get(title.lower())
    if text is None:
        similar = get_close_matches(title.lower(), entries, n=1)
        hint = f"did you mean {similar[0]}?" if similar else "doi-proxy runbook prints all entries"
        raise ConfigurationError(f"{title[:MAX_SHOWN]}: the runbook has no such entry; {hint}")
    return text


def _read_page(name: str) -> str:
    try:
        if not re.fullmatch("[a-z-]+", name):
            raise FileNotFoundError
        return read_manual_page(name)
    except OSError as error:
        message = f"--page {name[:MAX_SHOWN]}: the manual has no such page; `doi-proxy runbook --page index` lists them"
        raise ConfigurationError(message) from error
