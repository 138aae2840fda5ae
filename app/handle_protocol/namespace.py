"""HS_NAMESPACE: the settings of a prefix record that hold for all names under it (technical manual, chapter 11)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

from handle_protocol.location import (
    MAX_ELEMENTS,
    MAX_HANDLES,
    MAX_XML_BYTES,
    MalformedLocations,
    is_true_setting,
    local_name,
    parse_xml,
    split_handles,
)
from handle_protocol.value import Record


@dataclass(frozen=True, slots=True)
class Namespace:
    """The part of a prefix record that a proxy uses."""

    #: Handles whose 10320/loc values hold for every name under the prefix: usually the agency's service handle.
    locs: tuple[str, ...] = ()
    #: Service handles that HS_SERV values name. They identify the agency if `locs` is empty.
    services: tuple[str, ...] = ()
    #: Stops the inheritance of the parent prefix's locations.
    no_nslocs: bool = False
    contact: str | None = None
    status: str | None = None
    status_message: str | None = None

    @property
    def is_inactive(self) -> bool:
        """Whether the names under the prefix are out of use."""
        return (self.status or "").strip().lower() == "inactive"


def read_namespace(record: Record) -> Namespace:
    """The namespace of a prefix record, read once: of its HS_NAMESPACE values, the well-formed one of lowest index."""
    return record.derive(_parse_record)


def _parse_record(record: Record) -> Namespace:
    namespace, room = Namespace(), MAX_XML_BYTES
    # HS_NAMESPACE values of one record. The rest is ignored.
    for value in sorted(record.of_type("HS_NAMESPACE")[:10], key=lambda value: value.index):
        room -= len(value.text or "")
        if room < 0:
            break
        try:
            namespace = _parse_namespace(value.text or "")
            break
        except MalformedLocations:
            continue
    services = tuple(v.text.strip() for v in record.of_type("HS_SERV")[:MAX_HANDLES] if v.text and v.text.strip())
    contact = namespace.contact or next((v.text for v in record.of_type("EMAIL") if v.text), None)
    return replace(namespace, services=services, contact=contact)


def _parse_namespace(xml: str) -> Namespace:
    locs: list[str] = []
    no_nslocs = False
    texts: dict[str, str] = {}
    for child in islice(parse_xml(xml), MAX_ELEMENTS):
        name, text = local_name(child), "".join(child.itertext()).strip()
        if name == "locs":
            locs += split_handles(text)
            no_nslocs = no_nslocs or is_true_setting(child.get("no_nslocs"))
        elif name and text:
            texts.setdefault(name, text)
    return Namespace(
        tuple(locs[:MAX_HANDLES]),
        (),
        no_nslocs,
        texts.get("contact"),
        texts.get("status"),
        texts.get("statusmsg"),
    )
