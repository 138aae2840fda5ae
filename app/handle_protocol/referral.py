"""What records and answers say about where a handle is: in the sites of a service, or further on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from doi_names.name import MAX_NAME_BYTES
from handle_protocol.errors import MalformedMessage
from handle_protocol.wire.response import SignedAnswer
from handle_protocol.wire.site_value import ServiceSite, decode_site
from handle_protocol.wire.value import Permission, TtlType, Value

#: The handle whose HS_SITE values are the root.
ROOT_HANDLE: Final = b"0.NA/0.NA"
_PREFIX_RECORDS: Final = b"0.NA/"
#: The types by which a prefix record, or the record of a service handle, names its sites (RFC 3651, sections 3.2.2 and
#: 3.2.4).
SERVICE_TYPES: Final = (b"HS_SITE", b"HS_SITE.6", b"HS_SERV")
_SITE_TYPES: Final = (b"HS_SITE", b"HS_SITE.6")
_SERVICE_TYPES: Final = (b"HS_SERV",)
# The values of a referral, response code 303 (RFC 3651, section 3.2.3; RFC 3652, section 3.4). They hold for all
# prefixes derived from the one that has them.
_DELEGATE_TYPES: Final = (b"HS_SITE.PREFIX", b"HS_NA_DELEGATE")
_DELEGATE_SERVICE_TYPES: Final = (b"HS_SERV.PREFIX",)
#: Sites of one service, and bytes of their values. The rest is ignored. Services in use have fewer than ten sites.
_MAX_SITES: Final = 16
_MAX_SITE_BYTES: Final = 64 * 1024
#: Service handles of one record. The rest is ignored.
_MAX_SERVICE_HANDLES: Final = 8
#: Site values with more bytes or more interfaces than this count as several services in a directory.
_USUAL_BYTES: Final = 4_096
_USUAL_INTERFACES: Final = 16


@dataclass(frozen=True, slots=True)
class HandleService:
    """The sites of a service. `is_verified`: a chain of signatures from the root leads to their keys.

    `proof` are the answers of that chain. None if they are not known.
    """

    sites: tuple[ServiceSite, ...]
    is_verified: bool
    proof: tuple[SignedAnswer, ...] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be found out about a handle."""

    handle: bytes
    #: Types and indexes of the values. A value of one of them is sent. All values if both are empty.
    types: tuple[bytes, ...] = ()
    indexes: tuple[int, ...] = ()
    #: Only a primary site may answer.
    authoritative: bool = False
    #: The answer must be signed, and so must every answer that leads to the server.
    certified: bool = False
    #: It is about a prefix or a service handle, on the way to the server of a name.
    is_lookup: bool = False


@dataclass(frozen=True, slots=True)
class Lead:
    """Where a record leads: to sites, else to the record of one of the service handles."""

    sites: tuple[ServiceSite, ...]
    #: In the order in which they are tried. Empty if there are sites.
    service_handles: tuple[bytes, ...]
    #: Seconds for which this is true.
    lifetime: float
    #: The memory that this takes, in usual services.
    weight: int = 1


def prefix_record(handle: bytes) -> bytes | None:
    """The handle of the prefix record of a handle. None for a prefix record: its service is found from the root."""
    prefix, slash, _ = handle.partition(b"/")
    if not slash or prefix.upper() == _PREFIX_RECORDS[:-1]:
        return None
    return _PREFIX_RECORDS + prefix


def read_lead(values: Sequence[Value], now: float) -> Lead | None:
    """Where a prefix record or the record of a service handle leads; None if nowhere."""
    return _read(values, _SITE_TYPES, _SERVICE_TYPES, now)


def read_referral(values: Sequence[Value], now: float) -> Lead | None:
    """Where a referral leads; None if nowhere."""
    return _read(values, _DELEGATE_TYPES, _DELEGATE_SERVICE_TYPES, now)


def _read(
    values: Sequence[Value], site_types: tuple[bytes, ...], service_types: tuple[bytes, ...], now: float
) -> Lead | None:
    public = [value for value in values if value.permissions & Permission.PUBLIC_READ]
    site_values = _bound([value for value in public if value.type.upper() in site_types])
    sites = tuple(site for value in site_values if (site := _decode(value.data)) is not None)
    if sites:
        return Lead(sites, (), _lifetime(site_values, now), _weigh(site_values, sites))
    # The data is sent as a name, in a query.
    named = [v for v in public if v.type.upper() in service_types and 0 < len(v.data.strip()) <= MAX_NAME_BYTES]
    named = named[:_MAX_SERVICE_HANDLES]
    handles = tuple(dict.fromkeys(value.data.strip() for value in named))
    return Lead((), handles, _lifetime(named, now), _weigh(named, ())) if handles else None


def _bound(site_values: list[Value]) -> list[Value]:
    sizes = accumulate(len(value.data) for value in site_values)
    count = sum(size <= _MAX_SITE_BYTES for size in sizes)
    return site_values[: min(count, _MAX_SITES)]


def _weigh(values: list[Value], sites: tuple[ServiceSite, ...]) -> int:
    # An interface has 6 bytes in the value, and 100 in memory.
    interfaces = sum(len(server.interfaces) for site in sites for server in site.servers)
    return 1 + sum(len(value.data) for value in values) // _USUAL_BYTES + interfaces // _USUAL_INTERFACES


def _decode(data: bytes) -> ServiceSite | None:
    # One malformed value must not hide the other sites of the service.
    try:
        return decode_site(data)
    except MalformedMessage:
        return None


def _lifetime(values: Iterable[Value], now: float) -> float:
    return min((_remaining(value, now) for value in values), default=0.0)


def _remaining(value: Value, now: float) -> float:
    if value.ttl_type == TtlType.ABSOLUTE:
        return max(0.0, value.ttl - now)
    return max(0.0, float(value.ttl)) if value.ttl_type == TtlType.RELATIVE else 0.0
