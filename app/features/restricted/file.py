"""The file that `native_restricted` names: an identity, its prefixes and the readers of restricted values."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final, NoReturn

from app.doi.name import HandleName, fold
from app.errors import ConfigurationError, DoiProxyError
from app.features.network_list import NetworkList
from app.features.restricted.identity import Identity, prove_by_private_key, prove_by_secret
from app.system.regular_file import explain_failure, read_regular
from app.system.toml_text import TomlProblem, find_key, parse_toml

#: Bytes of the file itself, of a key and of the list of tokens.
_MAX_BYTES: Final = 64 * 1024
_MAX_ITEMS: Final = 100
_KEYS: Final = ("identity", "secret_key", "private_key", "prefixes", "tokens", "networks")
#: The shortest token and the shortest secret key, in bytes.
_SHORTEST_TOKEN: Final = 16
_SHORTEST_SECRET: Final = 8
_TOKEN: Final = re.compile(rb"[!-~]{%d,1024}" % _SHORTEST_TOKEN)
_INDEX: Final = re.compile("[1-9][0-9]{0,8}")
_PREFIX: Final = re.compile(r"[0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]+)*")


@dataclass(frozen=True, slots=True)
class Readers:
    """Who gets restricted values: the holders of a token, and the clients of networks."""

    tokens: tuple[bytes, ...] = field(default=(), repr=False)
    networks: NetworkList = field(default_factory=NetworkList)


@dataclass(frozen=True, slots=True)
class RestrictedAccess:
    """What the file says. `prefixes` are folded. `exposed` are the secret files that every user can read."""

    identity: Identity
    prefixes: tuple[str, ...]
    readers: Readers
    exposed: tuple[Path, ...] = ()


def read_access(path: Path, salt: bytes) -> RestrictedAccess:
    """Read the file and those that it names. Raises ConfigurationError with the file, the line and what is wrong.

    No message has a part of a key or of a token. `salt` is random, for the proofs of a secret key.
    """
    text = _read(path, "it").decode("utf-8", "replace")
    try:
        table = parse_toml(text)
        return _Reading(path, text, table).read(salt)
    except TomlProblem as error:
        raise ConfigurationError(f"{path}:{error.line}:{error.column}: {error.message}") from None


def _read(path: Path, what: str) -> bytes:
    try:
        return read_regular(path, _MAX_BYTES)
    except OSError as error:
        raise ConfigurationError(f"{path}: {what} cannot be read: {explain_failure(error)}") from error


class _Reading:
    def __init__(self, path: Path, text: str, table: Mapping[str, Any]) -> None:
        self._path = path
        self._text = text
        self._table = table
        self._exposed: list[Path] = []

    def read(self, salt: bytes) -> RestrictedAccess:
        for key in self._table:
            if key not in _KEYS:
                self._refuse(key, f"{key[:40]!r} is not known; use {', '.join(_KEYS)}")
        index, handle = self._read_identity()
        kind, prove = self._read_key(salt)
        prefixes = self._read_prefixes()
        readers = Readers(self._read_tokens(), self._read_networks())
        if not readers.tokens and not readers.networks:
            self._refuse(None, "no reader gets the values; name a file of tokens, or networks")
        return RestrictedAccess(Identity(index, handle, kind, prove), prefixes, readers, tuple(self._exposed))

    def _read_identity(self) -> tuple[int, str]:
        text = self._string("identity") or ""
        index, _, handle = text.partition(":")
        try:
            if _INDEX.fullmatch(index) and "/" in handle:
                return int(index), HandleName(handle).text
        except DoiProxyError:
            pass
        self._refuse("identity", f"{text[:80]!r} is not an index and a handle; write it as 300:10.1234/ADMIN")

    def _read_key(self, salt: bytes) -> tuple[bytes, Callable[[bytes], bytes]]:
        secret, private = self._string("secret_key"), self._string("private_key")
        if (secret is None) == (private is None):
            self._refuse("private_key", "name one file of a key: secret_key (HS_SECKEY) or private_key (HS_PUBKEY)")
        if secret is not None:
            content = self._read_secret("secret_key", secret)
            content = content.removesuffix(b"\n").removesuffix(b"\r")
            if len(content) < _SHORTEST_SECRET:
                self._refuse("secret_key", f"the key has {len(content)} bytes; it needs at least {_SHORTEST_SECRET}")
            return b"HS_SECKEY", prove_by_secret(content, salt)
        try:
            return b"HS_PUBKEY", prove_by_private_key(self._read_secret("private_key", private or ""))
        except ConfigurationError as error:
            self._refuse("private_key", f"{private}: {error.message}")

    def _read_prefixes(self) -> tuple[str, ...]:
        found = self._list("prefixes")
        for prefix in found:
            if not _PREFIX.fullmatch(prefix) or fold(prefix) == "0.NA":
                self._refuse("prefixes", f"{prefix[:80]!r} is not a prefix such as 10.1234")
        if not found:
            self._refuse("prefixes", "no prefix is named, such as 10.1234")
        return tuple(fold(prefix) for prefix in found)

    def _read_tokens(self) -> tuple[bytes, ...]:
        name = self._string("tokens")
        if name is None:
            return ()
        found = []
        for number, line in enumerate(self._read_secret("tokens", name).split(b"\n"), 1):
            token = line.strip()
            if not token or token.startswith(b"#"):
                continue
            if not _TOKEN.fullmatch(token):
                text = f"{name}: line {number} is not a token of at least {_SHORTEST_TOKEN} printable ASCII characters"
                self._refuse("tokens", f"{text} without spaces, such as the output of `openssl rand -base64 32`")
            found.append(token)
        if not found or len(found) > _MAX_ITEMS:
            self._refuse("tokens", f"{name} has {len(found)} tokens; it needs 1 to {_MAX_ITEMS}, one a line")
        return tuple(found)

    def _read_networks(self) -> NetworkList:
        try:
            networks = NetworkList(ip_network(item) for item in self._list("networks"))
        except ValueError as error:
            self._refuse("networks", f"{error}; write a network such as 192.0.2.0/24")
        if networks.has_everyone:
            self._refuse("networks", "a network has every address, so every client would be a reader")
        return networks

    def _read_secret(self, key: str, name: str) -> bytes:
        path = self._path.parent / name
        try:
            content = _read(path, "it")
            if stat.S_IMODE(path.stat().st_mode) & stat.S_IROTH:
                self._exposed.append(path)
        except (ConfigurationError, OSError) as error:
            self._refuse(key, getattr(error, "message", str(error)))
        return content

    def _string(self, key: str) -> str | None:
        value = self._table.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            self._refuse(key, f"{key} is not a text")
        return value

    def _list(self, key: str) -> list[str]:
        value = self._table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value) or len(value) > _MAX_ITEMS:
            self._refuse(key, f"{key} is not a list of at most {_MAX_ITEMS} texts")
        return value

    def _refuse(self, key: str | None, message: str) -> NoReturn:
        line, column = (1, 1) if key is None else find_key(self._text, key)
        raise ConfigurationError(f"{self._path}:{line}:{column}: {message}")
