"""The sockets on which the service listens."""

from __future__ import annotations

import errno
import re
import socket
import stat
import struct
from collections.abc import Callable, Container, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from doi_proxy.errors import ConfigurationError, DoiProxyError

_PLAIN: Final = rb"[A-Za-z0-9._~!$&'()*+,;=-]"
#: A registered name, without escapes or with them, or an IP literal in brackets, then an optional port (RFC 3986,
#: section 3.2.2). The name may be empty. A DNS name has at most 253 characters (RFC 1035, section 2.3.4); 255 leave
#: room for a final dot.
_NAME: Final = rb"%b{0,255}|(?:%b|%%[0-9A-Fa-f]{2}){0,255}" % (_PLAIN, _PLAIN)
_HOST: Final = re.compile(rb"(?:%b|\[[0-9A-Za-z:.~_!$&'()*+,;=-]{1,64}\])(?::[0-9]{0,5})?" % _NAME)
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]+)(.*)", re.IGNORECASE | re.DOTALL)


def is_host(value: bytes) -> bool:
    """Whether the value of a Host header is valid."""
    return _HOST.fullmatch(value) is not None


def split_absolute(target: bytes) -> tuple[bytes, bytes] | None:
    """The host, with its port, and the path and query of a target in absolute form. None for any other target.

    An empty path stands for "/" (RFC 9110, section 4.2.3). The host is not checked.
    """
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        return None
    host, rest = found.groups()
    return host, rest if rest.startswith(b"/") else b"/" + rest


#: The beginning of the address of a Unix socket.
UNIX: Final = "unix:"
#: Errors that pass when another program ends, or when an interface of the network is up.
_PASSING: Final = frozenset({errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.ENOENT})


class AddressUnavailable(DoiProxyError):
    """The address to listen on is in use, or this machine does not have it yet."""


def listen(host: str, port: int) -> socket.socket:
    """Bind a socket to a port, or to the `unix:path` in `host`. The server starts to listen on it when it can answer.

    Raises AddressUnavailable for an address that can become free, and ConfigurationError for any other.
    """
    if host.startswith(UNIX):
        return _listen_on_file(host)
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == "::":
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind((host, port))
        return listening
    except (TypeError, ValueError) as error:  # no host name (RFC 1035, section 2.3.4; RFC 5891, section 4.2)
        listening.close()
        raise ConfigurationError(
            f"cannot listen on {host[:80]!r}: {error}; choose another address with --host"
        ) from error
    except OSError as error:
        listening.close()
        reason = {
            errno.EADDRINUSE: "the port is in use; stop the program that uses it, or choose another port with --port",
            errno.EACCES: "this user may not open the port; choose a port above 1023 with --port",
            errno.EADDRNOTAVAIL: "this machine does not have this address; choose one of its addresses with --host",
        }.get(error.errno or 0, str(error))
        raise _refuse(f"cannot listen on {host} port {port}: {reason}", error) from error


def listen_at(address: str) -> socket.socket:
    """Bind a socket to `host:port` or `unix:path`. Raises AddressUnavailable and ConfigurationError."""
    if address.startswith(UNIX):
        return _listen_on_file(address)
    host, _, port = address.rpartition(":")
    return listen(host.strip("[]"), int(port))


def release(listening: socket.socket) -> None:
    """Close a socket on which no process will listen, and remove its file if it has one."""
    name = listening.getsockname()
    listening.close()
    if isinstance(name, str):
        Path(name).unlink(missing_ok=True)


def _listen_on_file(address: str) -> socket.socket:
    path = Path(address.removeprefix(UNIX))
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_abandoned(path)
        listening.bind(str(path))
        # No process can connect before the server listens.
        # The owner and the group of the service may connect to a Unix socket.
        path.chmod(0o660)
        return listening
    except OSError as error:
        listening.close()
        reason = {
            errno.EADDRINUSE: "another program uses it; stop that program, or choose another path",
            errno.EEXIST: "it is a file, not a socket; choose another path",
            errno.ENOENT: "its folder does not exist; create it for the user of the service",
            errno.EACCES: "this user may not write to its folder; let the folder belong to the user of the service",
        }.get(error.errno or 0, str(error))
        raise _refuse(f"cannot listen on {address}: {reason}", error) from error


def _refuse(message: str, error: OSError) -> DoiProxyError:
    return (AddressUnavailable if error.errno in _PASSING else ConfigurationError)(message)


def _remove_abandoned(path: Path) -> None:
    """Remove a socket on which no process listens. A service that has ended leaves its socket behind."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "not a socket", str(path))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
            # A full backlog must not keep the start waiting.
            attempt.setblocking(False)
            if attempt.connect_ex(str(path)) == errno.ECONNREFUSED:
                path.unlink()


#: The header of a connection that a program opens for itself, such as a health check (section 2.1).
OWN_CONNECTION: Final = b"PROXY UNKNOWN\r\n"


#: The longest header of version 1 (section 2.1).
_MAX_LINE_BYTES: Final = 107


_WORD: Final = b"PROXY "


_UNKNOWN: Final = b"UNKNOWN"


_PORT: Final = rb"(0|[1-9][0-9]{0,4})"


_LINE: Final = re.compile(rb"TCP([46]) ([0-9A-Fa-f:.]+) ([0-9A-Fa-f:.]+) " + _PORT + b" " + _PORT)


_LINE_FAMILIES: Final = {b"4": socket.AF_INET, b"6": socket.AF_INET6}


_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"


#: After the signature: the version and the command, the family and the transport, and the length of the rest.
_START: Final = struct.Struct(">BBH")


_START_BYTES: Final = len(_SIGNATURE) + _START.size


_LOCAL, _PROXY = 0x20, 0x21


_STREAM_OVER_IPV4, _STREAM_OVER_IPV6 = 0x11, 0x21


#: Both addresses and both ports, in network byte order.
_ADDRESSES: Final = {
    _STREAM_OVER_IPV4: (socket.AF_INET, struct.Struct(">4s4sHH")),
    _STREAM_OVER_IPV6: (socket.AF_INET6, struct.Struct(">16s16sHH")),
}


#: Unspecified, datagrams and Unix sockets. A receiver that does not use their addresses uses those of the connection.
_WITHOUT_ADDRESS: Final = frozenset({0x00, 0x12, 0x22, 0x31, 0x32})


class MalformedHeader(ValueError):
    """The bytes do not begin with a header of the PROXY protocol."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A header: its length in bytes, and the address and port of the client. Without one, the client is the peer."""

    length: int
    client: tuple[str, int] | None


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """The header at the beginning of `data`, None if more bytes are needed. Raises MalformedHeader."""
    if data.startswith(_SIGNATURE[: len(data)]):
        return _read_binary(data)
    if data.startswith(_WORD[: len(data)]):
        return _read_line(data)
    raise MalformedHeader


def _read_line(data: bytes) -> ProxyHeader | None:
    """Version 1 (section 2.1)."""
    end = data.find(b"\r\n", 0, _MAX_LINE_BYTES)
    if end < 0:
        if len(data) >= _MAX_LINE_BYTES:
            raise MalformedHeader
        return None
    content, length = data[len(_WORD) : end], end + 2
    if content.partition(b" ")[0] == _UNKNOWN:  # whatever follows is to be ignored
        return ProxyHeader(length, None)
    fields = _LINE.fullmatch(content)
    if fields is None:
        raise MalformedHeader
    family, source, target, source_port, target_port = fields.groups()
    try:
        packed, _ = (socket.inet_pton(_LINE_FAMILIES[family], address.decode()) for address in (source, target))
    except OSError as error:
        raise MalformedHeader from error
    if max(int(source_port), int(target_port)) > 0xFFFF:
        raise MalformedHeader
    return ProxyHeader(length, (socket.inet_ntop(_LINE_FAMILIES[family], packed), int(source_port)))


def _read_binary(data: bytes) -> ProxyHeader | None:
    """Version 2 (section 2.2)."""
    if len(data) < _START_BYTES:
        return None
    command, family, rest = _START.unpack_from(data, len(_SIGNATURE))
    length = _START_BYTES + rest
    # The longest header of version 2, with its TLVs. The specification permits 64 KiB; the TLVs are not used here.
    if command not in (_LOCAL, _PROXY) or length > 4_096:
        raise MalformedHeader
    has_address = command == _PROXY and family in _ADDRESSES
    if command == _PROXY and not has_address and family not in _WITHOUT_ADDRESS:
        raise MalformedHeader
    if has_address and rest < _ADDRESSES[family][1].size:
        raise MalformedHeader
    if len(data) < length:
        return None
    if not has_address:
        return ProxyHeader(length, None)
    kind, layout = _ADDRESSES[family]
    source, _, port, _ = layout.unpack_from(data, _START_BYTES)
    return ProxyHeader(length, (socket.inet_ntop(kind, source), port))


#: The client of a connection through a Unix socket, and the word of nginx for such a client in X-Forwarded-For.
UNIX_PEER: Final = UNIX


_FOR, _PROTO, _SCHEMES = b"x-forwarded-for", b"x-forwarded-proto", ("http", "https")


def trusted_addresses(trusted_proxies: tuple[str, ...]) -> Callable[[str], bool]:
    """A test for the addresses in `trusted_proxies`: addresses and networks, or `*` for all."""
    test: Callable[[str], bool] = trusted_hosts(trusted_proxies).__contains__
    return test


def trusted_hosts(trusted_proxies: tuple[str, ...]) -> Any:
    """What uvicorn's middleware needs to recognise front proxies.

    uvicorn remembers which addresses it has tested, so those of 4,096 clients. Here only their hashes are kept, which
    Python salts in each process.
    """
    # The permissions of a Unix socket decide who its peers are.
    proxies = "*" if "*" in trusted_proxies else [*trusted_proxies, UNIX_PEER]
    hosts: Any = ProxyHeadersMiddleware(None, proxies).trusted_hosts  # type: ignore[arg-type]
    answers: dict[int, bool] = {}

    def is_trusted(host: str) -> bool:
        key = hash(host)
        answer = answers.get(key)
        if answer is None:
            # Addresses whose test is remembered.
            if len(answers) >= 4_096:
                answers.clear()
            answer = answers[key] = bool(hosts._compute_trust(host))
        return answer

    hosts._trusts = is_trusted
    return hosts


def is_forwarded(fields: Container[bytes]) -> bool:
    """Whether a request has a header that a trusted proxy can set. `fields` are the names of its headers."""
    return _FOR in fields or _PROTO in fields


def read_client(hosts: Any, forwarded_for: bytes) -> tuple[str, int]:
    """The client that X-Forwarded-For names, as address and port; "" without one. `hosts` are the trusted proxies."""
    if forwarded_for.replace(b".", b"").isdigit():
        return forwarded_for.decode("ascii"), 0  # one address of IPv4: as below, in half the time
    client: tuple[str, int] = hosts.get_trusted_client_address(forwarded_for.decode("latin-1"))
    return client


def unwrap(app: Any) -> Any:
    """The application within the middleware, which then has nothing left to do but know the trusted proxies."""
    return app.app if isinstance(app, ProxyHeadersMiddleware) else app


def forwarded_scope(app: object, scope: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The scope as the middleware passes it on, for an application that is called without it."""
    peer = scope["client"][0] if scope.get("client") else ""
    if not isinstance(app, ProxyHeadersMiddleware) or peer not in app.trusted_hosts:
        return scope
    # A copy: the middleware reads who sent the request from the scope, if the answer takes a task after all.
    scope = dict(scope)
    forwarded_for = [value for name, value in scope["headers"] if name == _FOR]
    client = read_client(app.trusted_hosts, b", ".join(forwarded_for)) if forwarded_for else ("", 0)
    if client[0]:
        scope["client"] = client
    protos = [value for name, value in scope["headers"] if name == _PROTO]
    scheme = protos[-1].decode("latin-1").strip() if protos else ""
    if scheme in _SCHEMES:
        scope["scheme"] = scheme
    return scope
