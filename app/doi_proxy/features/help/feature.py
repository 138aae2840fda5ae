"""Help for a reader whose link works, but whose page does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from doi_proxy.features.feature import Feature, Opened

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_proxy.web.redirect import Face


class Help(Feature):
    """The page of each name, which its record links."""

    name = "help"
    summary = "/help/<DOI>: what to do if the link works, but the page does not"
    needs = ("sqlite",)

    @classmethod
    def samples(cls) -> dict[str, dict[str, Any]]:
        """See Feature."""
        from markupsafe import Markup

        from doi_proxy.web.pages import Way

        target, ways = "https://example.org/", (Way(Markup("Ask:"), (Markup("us"),)),)
        facts = {"target": target, "host": "example.org", "agency": "Crossref", "changed": "1 March 2026"}
        return {
            "help": {
                "failure": None,
                "stale": None,
                "is_local": False,
                **facts,
                "earlier": [(target, "1 March 2025")],
                "ways": ways,
            },
            "help_form": {"typed": "10.1000", "is_wrong": True},
        }

    def add_routes(self, app: FastAPI, face: Face, opened: Opened) -> None:
        """Add the page."""
        from doi_proxy.features.help.page import HelpPage
        from doi_proxy.store.file import find_store_file

        store = find_store_file(self.context.settings.store_url)
        HelpPage(opened.core, store, self.context.clock, opened.admit).add_to(app, face)
