"""The proof of an answer: what a handle server signed, and the keys up to the root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI

from app.features.feature import Context, Feature, Opened
from app.features.native.feature import FROM_ROOT
from app.features.options import Settings
from app.features.proof.http import PROOF_PATH, add_proof
from app.features.proof.section import ProofLink
from app.web.operations import Face

if TYPE_CHECKING:
    from app.features.native.referral import HandleService


def open_proof(context: Context) -> Opened:
    """The endpoint /api/proof/<name>, and the link to it if names are found from the root."""
    root, core = _read_root(context.settings), context.core

    def add(app: FastAPI, face: Face) -> None:
        add_proof(app, core, root)

    sections = () if root is None else (ProofLink(core),)
    return Opened(sections=sections, routes=(add,), own_api={PROOF_PATH.encode(): "proof"})


def _read_root(settings: Settings) -> HandleService | None:
    urls = (*settings.upstream_urls, *settings.upstream_route_urls.values())
    if settings.mode == "sealed" or FROM_ROOT not in urls:
        return None
    from app.features.native.opening import read_root  # noqa: PLC0415 - only a proxy with handle servers needs it

    return read_root(settings)


def sample_facts() -> dict[str, dict[str, Any]]:
    """The facts of a sample of the block, by its template."""
    return {"proof": {"is_proven": True}}


FEATURE: Final = Feature(
    "proof",
    "the proof of an answer: what a handle server signed, and the keys up to the root",
    needs=("native", "lists"),
    open=open_proof,
    samples=sample_facts,
)
