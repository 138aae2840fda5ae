"""The plain redirect of an entry in a store: where in its values the target is, and by which rules that was decided.

The target itself is stored once, in the values, so it cannot differ from them (docs/decisions/0021).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from doi_proxy.resolver.resolver import MAX_BYTES_NOW
from doi_proxy.resolver.target import read_unconditional_target
from doi_proxy.resolver.target_url import TARGET_RULES, web_target
from handle_protocol.answer import Answer, ProvenAnswer
from handle_protocol.errors import UnusableAnswer

#: The version of the rules that found the target; its first byte in the JSON of the values, and the one after its last.
PLACE: Final = Struct("<BHH")


class RedirectAnswer(Answer, frozen=True, gc=False):
    """A plain redirect whose URL is safe in a header and in `values` as it is.

    Its place adds nothing to the values, so the answer is equal to one without it.
    """

    #: The first byte of the target in `values`, and the byte after its last.
    start: int = 0
    end: int = 0

    @property
    def target(self) -> str:  # type: ignore[override]
        """The URL."""
        return self.values[self.start : self.end].decode("ascii")

    def __eq__(self, other: object) -> bool:
        if type(other) is not Answer and type(other) is not RedirectAnswer:
            return NotImplemented
        return self.agrees_with(other) and (self.detail, self.is_verified) == (other.detail, other.is_verified)

    __hash__ = Answer.__hash__


def pack_place(answer: Answer) -> bytes | None:
    """The place of the target to which a record leads every client. None if the values do not contain it as it is."""
    if isinstance(answer, RedirectAnswer):
        return PLACE.pack(TARGET_RULES, answer.start, answer.end)
    if len(answer.values) > MAX_BYTES_NOW or isinstance(answer, ProvenAnswer):
        return None
    try:
        found = read_unconditional_target(answer.values)
    except UnusableAnswer:
        return None
    if found is None or found.location != found.display:
        return None
    start = answer.values.find(b'"%b"' % found.location.encode()) + 1
    return PLACE.pack(TARGET_RULES, start, start + len(found.location)) if start > 0 else None


def holds_target(values: bytes, rules: int, start: int, end: int) -> bool:
    """Whether these rules found the target at a place in the values, and it is safe.

    A program that can write to the store can write any place, and any bytes there.
    """
    text = values[start:end].decode("latin-1")
    return rules == TARGET_RULES and len(values) <= MAX_BYTES_NOW and web_target(text) == text
