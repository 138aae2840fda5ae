"""The file beside the store that keeps a refreshed root of the handle system across restarts.

The file of `upstream_bootstrap` stays the start of trust: this one has only answers whose signatures lead from there.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from doi_names.errors import InvalidName
from doi_names.name import PREFIX_RECORDS, HandleName
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.native.errors import as_failure_of_server
from doi_proxy.resolver.resolution import TtlPolicy
from doi_proxy.system.files import read_regular, replace_private
from handle_protocol.client import read_response
from handle_protocol.directory import ServiceEntry
from handle_protocol.errors import HandleProtocolError, UnusableAnswer
from handle_protocol.json_sites import read_service_values
from handle_protocol.referral import DirectoryLimits, DirectoryObserver, HandleService, ResponseCode, read_lead
from handle_protocol.signature_chain import extend_chain, fingerprint, follow_chain
from handle_protocol.site import RootKeeper
from handle_protocol.value import parse_record
from handle_protocol.wire.message import Response

log = logging.getLogger(__name__)

_SQLITE: Final = "sqlite:///"
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
    return Path(store_url.removeprefix(_SQLITE) + ".root.json") if store_url.startswith(_SQLITE) else None


class RootFile(RootKeeper):
    """See RootKeeper. `root` is the operator's; `service` is the root at the end of the answers in the file."""

    def __init__(self, path: Path | None, root: HandleService) -> None:
        self._path = path
        self._root = root
        self._answers: tuple[bytes, ...] = ()
        self.service = root
        if root.is_verified and path is not None:
            self._read(path)

    async def keep(self, response: Response) -> None:
        """Write the answer that replaced the root. A file that cannot be written costs a log line."""
        try:
            self._answers = extend_chain(self._root, self._answers, response)
            if self._path is not None:
                await asyncio.to_thread(replace_private, self._path, self._encode())
        except (OSError, HandleProtocolError) as error:
            log.warning("the refreshed root could not be kept in %s: %s", self._path or "memory", _explain(error))

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


@dataclass(frozen=True, slots=True)
class ServiceRecords:
    """Reads and writes service lookups as records of the cache."""

    cache: TieredStore
    policy: TtlPolicy
    limits: DirectoryLimits

    async def load(self, record: bytes) -> ServiceEntry | None:
        """The lookup that the cache has, even if it is stale. None if it has none that names a service.

        Its times are those of a lookup at `fetched_at`: a record of the cache does not count for longer. "Not found" is
        not loaded: all names of a prefix would be "not found" by it, for as long as it is fresh.
        """
        name = _read_name(record)
        # Another process may have looked it up again, while the copy in memory is fresh by the record's own TTL.
        entry = None if name is None else await self.cache.get(name.key, newest=True)
        if entry is None or entry.answer.code is not ResponseCode.SUCCESS:
            return None
        try:
            values = read_service_values(parse_record(entry.answer.values))
        except UnusableAnswer:
            return None
        lead = read_lead(values, entry.fetched_at)
        if lead is None:
            return None
        # An operator can expire a record before its TTL ends.
        due_at = min(entry.fetched_at + self.limits.bound(lead.lifetime), entry.fresh_until)
        return ServiceEntry(lead, entry.answer.is_verified, entry.fetched_at, due_at, due_at + self.limits.grace)

    async def save(self, record: bytes, response: Response, found: ServiceEntry, *, sent_at: float) -> None:
        """Put the record that an answer has into the cache, with the time of its lookup."""
        try:
            answer = read_response(response, is_verified=found.is_verified)
        except HandleProtocolError:
            return  # It is too long as JSON. This process remembers the service.
        name = _read_name(record)
        if name is None:
            return
        known = await self.cache.get(name.key, newest=True)
        agrees = known is None or known.answer.agrees_with(answer)
        entry = self.policy.entry(name.key, answer, found.fetched_at)
        await self.cache.put(entry, announce=not agrees, sent_at=sent_at)


def _read_name(handle: bytes) -> HandleName | None:
    """The name of a handle. None if it cannot be a key of the cache."""
    try:
        name = HandleName(handle.decode())
        prefix = name.text[len(PREFIX_RECORDS) :]
        # Servers answer both names with the same record (see `read_answer`).
        is_prefix = name.key.startswith(PREFIX_RECORDS) and "/" not in prefix
        return HandleName(prefix) if is_prefix else name
    except (UnicodeDecodeError, InvalidName):
        return None


class DirectoryLog(DirectoryObserver):
    """See DirectoryObserver. `clock` is monotonic, in seconds. No line has the name of a prefix or of a handle."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._is_root_old = False
        self._overdue = 0
        self._overdue_since: float | None = None

    def record_refresh(self, error: HandleProtocolError | None) -> None:
        """The root was refreshed, or with an error it could not be. Log the first failure of several, and their end."""
        if error is not None and not self._is_root_old:
            log.warning("the root of the handle system could not be refreshed: %s %s", _describe(error), error.detail)
        elif error is None and self._is_root_old:
            log.warning("the root of the handle system was refreshed again")
        self._is_root_old = error is not None

    def record_overdue(self, error: HandleProtocolError) -> None:
        """A known service could not be looked up again, so its last known sites are used on.

        Log the first failed lookup, and then their number once an hour.
        """
        now = self._clock()
        self._overdue += 1
        # Seconds between two lines about services whose last known sites are used on.
        if self._overdue_since is None or now - self._overdue_since >= 3600.0:
            log.warning(
                "handle servers of known prefixes could not be looked up again (%s lookups); their last known "
                "addresses are used: %s",
                self._overdue,
                _describe(error),
            )
            self._overdue, self._overdue_since = 0, now


def _describe(error: HandleProtocolError) -> str:
    # A detail can name a handle, and operators may have chosen not to log names.
    failure = as_failure_of_server(error)
    return f"{failure.token}: {failure.message}"
