"""Checks before a start, files of an installation, and `doi-proxy doctor`."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from doi_proxy.endpoints.own_pages import no_file
from doi_proxy.features.feature import NOTHING, Context, Feature, Opened
from doi_proxy.features.setup.probe import Probe, add_probe
from doi_proxy.web.operations import Face


def open_probe(context: Context) -> Opened:
    """The route of the probes, if there is an admin token."""
    if context.settings.value("admin_token") is None:
        return NOTHING
    probe = Probe(context.settings.value("admin_token"), context.clock)
    context.reloads.on_reload(lambda new: probe.set_token(new.value("admin_token")), "admin_token")

    def add(app: FastAPI, face: Face) -> None:
        add_probe(app, probe, lambda request: no_file(face, request))

    return Opened(routes=(add,))


FEATURE: Final = Feature(
    "setup",
    "check, doctor, and the files of an installation",
    open=open_probe,
)
