"""The file beside the store that keeps a refreshed root of the handle system across restarts.

The file of `upstream_bootstrap` stays the start of trust: this one has only answers whose signatures lead from there.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode, b64encode
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from doi_proxy.errors import ConfigurationError
from doi_proxy.system.files import read_regular, replace_private
from handle_protocol.errors import HandleProtocolError
from handle_protocol.referral import HandleService
from handle_protocol.root_chain import extend_chain, fingerprint, follow_chain
from handle_protocol.wire.response import Response, SignedAnswer

log = logging.getLogger(__name__)

_SQLITE: Final = "sqlite:///"
_SUFFIX: Final = ".root.json"
#: Bytes of the file. An answer about the root has about 10 kB.
_MAX_BYTES: Final = 1024 * 1024


class _Content(msgspec.Struct):
    #: The fingerprint of the operator's root that the first answer was verified with.
    bootstrap: str
    #: Messages of the native protocol, in base64.
    answers: list[str]


_decoder: Final = msgspec.json.Decoder(_Content)


def root_file_path(store_url: str) -> Path | None:
    """The file beside a SQLite store. None for other stores, which have no folder of their own."""
    return Path(store_url.removeprefix(_SQLITE) + _SUFFIX) if store_url.startswith(_SQLITE) else None


class RootFile:
    """See RootKeeper. `root` is the operator's; `service` is the root at the end of the answers in the file."""

    def __init__(self, path: Path | None, root: HandleService) -> None:
        self._path = path
        self._root = root
        self._answers: tuple[bytes, ...] = ()
        self.service = root
        if root.is_verified:
            if path is not None:
                self._read(path)
            self.service = replace(self.service, proof=self._proof())

    async def keep(self, response: Response) -> tuple[SignedAnswer, ...] | None:
        """Write the answer that replaced the root. A file that cannot be written costs a log line.

        Returns the answers that prove the new root. None if the operator's root does not lead to it.
        """
        proof = None
        try:
            self._answers = extend_chain(self._root, self._answers, response)
            proof = self._proof()
            if self._path is not None:
                await asyncio.to_thread(replace_private, self._path, self._encode())
        except (OSError, HandleProtocolError) as error:
            log.warning("the refreshed root could not be kept in %s: %s", self._path or "memory", _explain(error))
        return proof

    def _proof(self) -> tuple[SignedAnswer, ...]:
        return tuple(SignedAnswer(b"", answer) for answer in self._answers)

    def _read(self, path: Path) -> None:
        try:
            content = _decode(read_regular(path, _MAX_BYTES))
            if content.bootstrap != fingerprint(self._root):
                log.info("upstream_bootstrap has changed since the root was kept in %s: it counts", path)
                return
            answers = tuple(b64decode(answer, validate=True) for answer in content.answers)
            self.service, self._answers = follow_chain(self._root, answers), answers
        except FileNotFoundError:
            return
        except (OSError, ValueError, ConfigurationError, HandleProtocolError) as error:
            log.warning("the root in %s is not used, but that of upstream_bootstrap: %s", path, _explain(error))

    def _encode(self) -> bytes:
        answers = [b64encode(answer).decode() for answer in self._answers]
        content = msgspec.json.encode(_Content(fingerprint(self._root), answers))
        if len(content) > _MAX_BYTES:
            raise OSError(f"it would have over {_MAX_BYTES} bytes")
        return content


def _decode(content: bytes) -> _Content:
    try:
        return _decoder.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigurationError(f"it cannot be read: {error}") from error


def _explain(error: Exception) -> str:
    if isinstance(error, HandleProtocolError):
        return f"{error.message} {error.detail}".strip()
    return getattr(error, "message", "") or getattr(error, "strerror", "") or str(error)
