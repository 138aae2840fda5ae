"""The archive of the description of a site."""

from __future__ import annotations

import zlib
from io import BytesIO
from pathlib import PurePosixPath
from struct import error as StructError
from typing import Final
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from handle_protocol.errors import InvalidSite

_ARCHIVE: Final = b"PK\x03\x04"
#: The description of the site in the archive that a server's setup makes for its registrar. The first one counts.
_MEMBERS: Final = ("siteinfo.json", "siteinfo.bin")
_ENCRYPTED: Final = 1
_ERRORS: Final = (BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, StructError, ValueError, zlib.error)


def unpack_bundle(content: bytes, most: int) -> bytes:
    """The description of the site in a sitebndl.zip, of at most `most` bytes. Another file is returned as it is.

    Raises InvalidSite.
    """
    if not content.startswith(_ARCHIVE):
        return content
    try:
        with ZipFile(BytesIO(content)) as archive:
            members = {PurePosixPath(member.filename).name: member for member in archive.infolist()}
            member = next((members[name] for name in _MEMBERS if name in members), None)
            if member is None:
                raise InvalidSite(f"the archive has no {' and no '.join(_MEMBERS)}")
            if member.flag_bits & _ENCRYPTED or member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise InvalidSite(f"{member.filename[:100]!r} is encrypted or compressed by an unusual method")
            with archive.open(member) as file:
                found = file.read(most + 1)
    except _ERRORS as error:
        raise InvalidSite(f"the archive cannot be read: {str(error)[:200]}") from error
    if len(found) > most:
        raise InvalidSite(f"{member.filename[:100]!r} in the archive has over {most} bytes")
    return found
