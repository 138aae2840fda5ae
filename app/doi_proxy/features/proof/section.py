"""The link from the page of a record, or of a name that does not exist, to the proof of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from doi_names.name import HandleName
from doi_proxy.web.section import PageKind, Section
from handle_protocol.answer import ProvenAnswer

if TYPE_CHECKING:
    from doi_proxy.features.feature import Core


class ProofLink(Section):
    """See Section."""

    template = "proof.html"

    def __init__(self, core: Core) -> None:
        self._core = core

    def read(self, kind: PageKind, name: HandleName | None, text: str) -> Mapping[str, Any]:
        """The path of the proof, if the answer in memory has one and no local record takes its place."""
        if kind not in ("values", "not_found") or name is None or self._core.resolver.is_local(name):
            return {}
        entry = self._core.cache.peek(name.key)
        is_proven = entry is not None and isinstance(entry.answer, ProvenAnswer)
        return {"is_proven": True} if is_proven else {}
