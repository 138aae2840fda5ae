"""The bootstrap file: the root's sites, from which every handle is found. It is the trusted start of all signatures.

Its content is the handle API's answer about 0.NA/0.NA, as `curl https://hdl.handle.net/api/handles/0.NA/0.NA` gets it.
"""

from __future__ import annotations

from typing import Final

from app.errors import ConfigurationError, CouldNotVerify
from app.features.native.json_sites import read_sites
from app.features.native.referral import ROOT_HANDLE, HandleService
from app.handle.answer import read_answer
from app.handle.record import parse_record

#: Bytes of the file. A root record of ten sites with RSA keys has about 20 kB.
MAX_BOOTSTRAP_BYTES: Final = 1024 * 1024
_SITE_TYPES: Final = ("HS_SITE", "HS_SITE.6")


def read_bootstrap(content: bytes) -> HandleService:
    """The root. It is verified if one of its servers has a public key. Raises ConfigurationError."""
    if len(content) > MAX_BOOTSTRAP_BYTES:
        raise ConfigurationError(f"the file has over {MAX_BOOTSTRAP_BYTES} bytes, which no root record has")
    try:
        record = parse_record(read_answer(content, ROOT_HANDLE.decode()).values)
        sites = read_sites(record, _SITE_TYPES)
    except CouldNotVerify as error:
        raise ConfigurationError(
            f"the file is not the handle API's answer about {ROOT_HANDLE.decode()}: {error.detail or error.message}"
        ) from error
    if not any(site.servers for site in sites):
        raise ConfigurationError("the file names no server of the root")
    return HandleService(sites, is_verified=any(server.public_key for site in sites for server in site.servers))
