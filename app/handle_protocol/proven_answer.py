"""An answer about one name with its proof."""

from __future__ import annotations

from handle_protocol.answer import Answer


class ProvenAnswer(Answer, frozen=True, gc=False):
    """A verified answer with what verifies it again, in the form of its source. Stores keep it."""

    proof: bytes = b""
