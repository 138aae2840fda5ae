"""Help for a reader whose link works, but whose page does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from doi_proxy.features.feature import Feature, Opened

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_proxy.web.redirect import Face


class Help(Feature):
    """The page of each name, which its record links."""

    name = "help"
    summary = "/help/<DOI>: what to do if the link works, but the page does not"
    needs = ("sqlite",)

    def add_routes(self, app: FastAPI, face: Face, opened: Opened) -> None:
        """Add the page."""
        from doi_proxy.features.help.page import HelpPage
        from doi_proxy.store.file import find_store_file

        store = find_store_file(self.context.settings.store_url)
        HelpPage(opened.core, store, self.context.clock, opened.admit).add_to(app, face)
