"""The proof of an answer: what a handle server signed, and the keys up to the root."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.feature import Context, Feature, Opened, require_libraries
from doi_proxy.features.native.feature import FEATURE as NATIVE
from doi_proxy.features.native.feature import is_from_root
from doi_proxy.features.options import Settings
from doi_proxy.features.proof.http import PROOF_PATH, add_proof
from doi_proxy.features.proof.section import ProofLink
from doi_proxy.features.proof.signature_line import SignatureLine
from doi_proxy.web.operations import Face
from doi_proxy.web.section import Section

if TYPE_CHECKING:
    from doi_proxy.features.native.referral import HandleService

log = logging.getLogger(__name__)


def open_proof(context: Context) -> Opened:
    """The endpoint /api/proof/<name>, the link to it if names are found from the root, and the line of signatures."""
    root, core = _read_root(context.settings), context.core
    sections: list[Section] = [] if root is None else [ProofLink(core)]
    if _has_libraries():
        sections.append(SignatureLine(core, _read_keys(context.settings), context.clock))

    def add(app: FastAPI, face: Face) -> None:
        add_proof(app, core, root)

    return Opened(sections=sections, routes=(add,), own_api={PROOF_PATH.encode(): "proof"})


def _read_root(settings: Settings) -> HandleService | None:
    urls = (*settings.upstream_url, *settings.upstream_route_urls.values())
    if settings.mode == "sealed" or not any(map(is_from_root, urls)):
        return None
    from doi_proxy.features.native.opening import read_root  # noqa: PLC0415 - only a proxy with handle servers needs it

    return read_root(settings)


def _has_libraries() -> bool:
    try:
        require_libraries(NATIVE)
    except ConfigurationError:
        return False
    return True


def _read_keys(settings: Settings) -> tuple[bytes, ...]:
    if settings.upstream_bootstrap is None:
        return ()
    from doi_proxy.features.native.opening import read_root_keys  # noqa: PLC0415 - see _read_root

    try:
        return read_root_keys(settings) or ()
    except ConfigurationError as error:
        # Only an upstream needs the file; it has raised then.
        log.warning("no signature of a record can be proven: %s", error.message)
        return ()


def _sample_facts() -> dict[str, dict[str, Any]]:
    """The facts of a sample of the block, by its template."""
    signature = {"state": "valid", "signer": "300:10.1000/key", "covered": 3, "total": 3}
    return {"proof": {"is_proven": True}, "signature": {"signature": signature}}


FEATURE: Final = Feature(
    "proof",
    "the proof of an answer: what a handle server signed, and the keys up to the root",
    needs=("native",),
    open=open_proof,
    samples=_sample_facts,
)
