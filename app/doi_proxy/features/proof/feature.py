"""The proof of an answer: what a handle server signed, and the keys up to the root."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from doi_proxy.errors import ConfigurationError, InvalidRequest
from doi_proxy.features import feature
from doi_proxy.system.options import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_proxy.web.redirect import Face
    from handle_protocol.referral import HandleService

log = logging.getLogger(__name__)

#: The endpoint, before the name.
PROOF_PATH: Final = "/api/proof/"


class NotVerified(InvalidRequest):
    """The cache has no proof of this name; request the name with cert, and see upstream_verify in docs/native.md."""

    status = 404
    token = "not-verified"
    title = "The cache has no proof of the name"


class Proof(feature.Feature):
    """The endpoint /api/proof/<name>, the link to it if names are found from the root, and the line of signatures."""

    name = "proof"
    summary = "the proof of an answer: what a handle server signed, and the keys up to the root"
    needs = ("native",)

    _root: HandleService | None

    def open(self, core: feature.Core, others: feature.Others) -> Iterable[feature.Part]:
        """The sections of the page of a record."""
        from doi_proxy.features.proof.signature_line import ProofLink, SignatureLine

        self._root = _read_root(self.context.settings)
        sections: list[feature.Part] = [] if self._root is None else [ProofLink(core)]
        if _has_libraries():
            sections.append(SignatureLine(core, _read_keys(self.context.settings), self.context.clock))
        return sections

    def add_routes(self, app: FastAPI, face: Face, opened: feature.Opened) -> None:
        """Add the endpoint."""
        from doi_proxy.features.proof.signature_line import add_proof

        face.own_api[PROOF_PATH.encode()] = "proof"
        add_proof(app, opened.core, self._root)


def _read_root(settings: Settings) -> HandleService | None:
    from doi_proxy.features.native.feature import is_from_root

    urls = (*settings.upstream_url, *settings.upstream_route_urls.values())
    if settings.mode == "sealed" or not any(map(is_from_root, urls)):
        return None
    from doi_proxy.features.native.opening import read_root

    return read_root(settings)


def _has_libraries() -> bool:
    from doi_proxy.features.native.feature import Native

    try:
        feature.require_libraries(Native)
    except ConfigurationError:
        return False
    return True


def _read_keys(settings: Settings) -> tuple[bytes, ...]:
    if settings.upstream_bootstrap is None:
        return ()
    from doi_proxy.features.native.opening import read_root_keys

    try:
        return read_root_keys(settings) or ()
    except ConfigurationError as error:
        # Only an upstream needs the file; it has raised then.
        log.warning("no signature of a record can be proven: %s", error.message)
        return ()
