"""Checks before a start, files of an installation, and `doi-proxy doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from doi_proxy.features.feature import Feature, Opened

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_proxy.web.redirect import Face


class Setup(Feature):
    """The routes of the runbook and, if there is an admin token, of the probes."""

    name = "setup"
    summary = "check, doctor, and the files of an installation"

    def add_routes(self, app: FastAPI, face: Face, opened: Opened) -> None:
        """Add the routes."""
        from doi_proxy.endpoints import no_file
        from doi_proxy.features.setup.probe import Probe, add_probe
        from doi_proxy.features.setup.runbook import add_runbook

        add_runbook(app, face)
        token = self.context.settings.value("admin_token")
        if token is not None:
            probe = Probe(token, self.context.clock)
            self.context.reloads.on_reload(lambda new: probe.set_key(new.value("admin_token")), "admin_token")
            add_probe(app, probe, lambda request: no_file(face, request))
