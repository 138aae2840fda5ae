"""Help for a reader whose link works, but whose page does not."""

from __future__ import annotations

from typing import Any, Final

from markupsafe import Markup

from doi_proxy.features.feature import Context, Feature, Opened
from doi_proxy.features.help.page import HelpPage
from doi_proxy.store.url import find_store_file
from doi_proxy.web.ways import Way


def open_help(context: Context) -> Opened:
    """The page of each name, which its record links."""
    page = HelpPage(context.core, find_store_file(context.facts.store_url), context.clock)
    return Opened(routes=(page.add_to,))


def _sample_facts() -> dict[str, dict[str, Any]]:
    """The facts of a sample of the page, by its template."""
    target = "https://example.org/"
    facts = {"known": True, "target": target, "host": "example.org", "agency": "Crossref", "registered": "1 March 2026"}
    return {"help": {**facts, "earlier": [(target, "1 March 2025")], "ways": (Way(Markup("Ask:"), (Markup("us"),)),)}}


FEATURE: Final = Feature(
    "help",
    "/help/<DOI>: what to do if the link works, but the page does not",
    needs=("sqlite",),
    open=open_help,
    samples=_sample_facts,
)
