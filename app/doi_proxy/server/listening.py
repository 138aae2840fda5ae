"""The sockets on which the service listens."""

from __future__ import annotations

import errno
import re
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

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
