"""The seam of pages: what a feature adds to a page, or to a problem, about a name or a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from doi_names.name import HandleName
from doi_proxy.resolver.options import Conditions

#: What a section is for: the page about a name that is not registered, that about a text that is not a name, the
#: problems about both (RFC 9457), and the page of a record.
PageKind = Literal["not_found", "not_a_doi", "problem", "values"]


class Section:
    """A block of a page, with its data, or members of a problem. Reading them takes no I/O."""

    #: The file of the block's template.
    template: str
    #: Whether the block of a record comes before what is known of the record itself.
    comes_first = False

    async def prepare(self, name: HandleName, client: str | None) -> None:
        """Bring what the block needs into memory, at the cost of `client`, a network. Raises nothing."""

    async def prepare_record(self, name: HandleName, conditions: Conditions) -> None:
        """The same for the page of a record. Raises nothing."""

    async def find_in_text(self, text: str, client: str | None) -> Sequence[HandleName]:
        """The names in a text of the form. What has to be looked up is at the cost of `client`. Raises nothing."""
        return ()

    def read(self, kind: PageKind, name: HandleName | None, text: str) -> Mapping[str, Any]:
        """The data of the block: about a name or, without one, about a text. Empty if the page has no block.

        A page whose data have `is_pending` is not kept: a later one may say more.
        """
        return {}

    def list_watched(self, name: HandleName) -> Sequence[HandleName]:
        """The names of which `read` looks up in memory whether they exist."""
        return ()


def list_overriding(sections: Sequence[Section], method: str) -> tuple[Section, ...]:
    """The sections that override a method. A page starts a task for each that prepares something."""
    return tuple(section for section in sections if getattr(type(section), method) is not getattr(Section, method))


def read_sections(
    sections: Sequence[Section], kind: PageKind, name: HandleName | None, text: str = ""
) -> dict[str, Any]:
    """The data of all sections, and for a page the templates of their `blocks`, and of those that come first."""
    read = [(section, facts) for section in sections if (facts := section.read(kind, name, text))]
    data = {key: value for _, facts in read for key, value in facts.items()}
    if kind == "problem":
        return data
    first = [section.template for section, _ in read if section.comes_first]
    return {**data, "first_blocks": first, "blocks": [one.template for one, _ in read if not one.comes_first]}
