"""What an operator adds to the description of a site: the archive that it is in, and the addresses behind a NAT."""

from __future__ import annotations

import zlib
from dataclasses import replace
from io import BytesIO
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import PurePosixPath
from struct import error as StructError
from typing import Final
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from app.errors import ConfigurationError
from app.features.native.referral import HandleService
from app.features.native.wire.site_value import Server, pack_address

_ARCHIVE: Final = b"PK\x03\x04"
#: The description of the site in the archive that a server's setup makes for its registrar. The first one counts.
_MEMBERS: Final = ("siteinfo.json", "siteinfo.bin")
_ENCRYPTED: Final = 1
_ERRORS: Final = (BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, StructError, ValueError, zlib.error)


def unpack_bundle(content: bytes, most: int) -> bytes:
    """The description of the site in a sitebndl.zip, of at most `most` bytes. Another file is returned as it is.

    Raises ConfigurationError.
    """
    if not content.startswith(_ARCHIVE):
        return content
    try:
        with ZipFile(BytesIO(content)) as archive:
            members = {PurePosixPath(member.filename).name: member for member in archive.infolist()}
            member = next((members[name] for name in _MEMBERS if name in members), None)
            if member is None:
                raise ConfigurationError(f"the archive has no {' and no '.join(_MEMBERS)}")
            if member.flag_bits & _ENCRYPTED or member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise ConfigurationError(f"{member.filename[:100]!r} is encrypted or compressed by an unusual method")
            with archive.open(member) as file:
                found = file.read(most + 1)
    except _ERRORS as error:
        raise ConfigurationError(f"the archive cannot be read: {str(error)[:200]}") from error
    if len(found) > most:
        raise ConfigurationError(f"{member.filename[:100]!r} in the archive has over {most} bytes")
    return found


def map_addresses(service: HandleService, pairs: str) -> HandleService:
    """The service at the addresses of this side of a NAT. `pairs` is "OUTSIDE=INSIDE&…". Raises ConfigurationError."""
    inside = dict(map(_read_pair, pairs.split("&")))
    servers = [server for site in service.sites for server in site.servers]
    for address in inside:
        if address not in {server.ip for server in servers}:
            known = ", ".join(dict.fromkeys(str(server.ip) for server in servers))
            raise ConfigurationError(f"no server of the file is at {address}; its addresses are {known[:200]}")

    def move(server: Server) -> Server:
        address = inside.get(server.ip)
        return server if address is None else replace(server, address=pack_address(address))

    sites = tuple(replace(site, servers=tuple(map(move, site.servers))) for site in service.sites)
    return replace(service, sites=sites)


def _read_pair(pair: str) -> tuple[IPv4Address | IPv6Address, IPv4Address | IPv6Address]:
    outside, _, inside = pair.partition("=")
    try:
        return ip_address(outside), ip_address(inside)
    except ValueError as error:
        raise ConfigurationError(
            f"{pair[:100]!r} is not a pair of addresses; write OUTSIDE=INSIDE, such as 203.0.113.7=10.0.0.7"
        ) from error
