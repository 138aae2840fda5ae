"""How the fake upstream misbehaves."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

_MIB: Final = 1024 * 1024
_FOR_EVER: Final = 3600.0
_JSON: Final = "application/json;charset=UTF-8"


@dataclass(frozen=True, slots=True)
class Asked:
    """One question as it arrived."""

    target: str
    name: str
    headers: dict[str, str]


Peer = asyncio.StreamWriter
#: Answers or fails to; True where the connection may be used again.
Misbehaviour = Callable[[Asked, Peer, dict[str, Any]], Awaitable[bool]]


def encoded(json_value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(json_value, ensure_ascii=False, separators=(",", ":")).encode()


def send(writer: Peer, status: int, body: bytes, kind: str = _JSON, **more: str) -> None:
    """Write a response; keywords are further header fields, "_" for "-"."""
    fields = {"content_type": kind, "content_length": str(len(body)), **more}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    writer.write(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode("latin-1") + body)


async def _reset(asked: Asked, writer: Peer, options: dict[str, Any]) -> bool:
    """The connection is reset without an answer."""
    connection: socket.socket = writer.get_extra_info("socket")
    # Closing with a linger time of zero sends RST.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


async def _close(asked: Asked, writer: Peer, options: dict[str, Any]) -> bool:
    """The connection is closed in order, without an answer."""
    return False


async def _hang(asked: Asked, writer: Peer, options: dict[str, Any]) -> bool:
    """Nothing comes, for ever."""
    await asyncio.sleep(_FOR_EVER)
    return False


async def _delay(asked: Asked, writer: Peer, options: dict[str, Any]) -> bool:
    """The right answer comes `seconds` late; for processes, a test holds and releases."""
    await asyncio.sleep(options["seconds"])
    return True


async def _status(asked: Asked, writer: Peer, options: dict[str, Any]) -> bool:
    """An HTML page of at least `size` bytes with the HTTP `status` and perhaps `retry_after`."""
    more = {"retry_after": str(options["retry_after"])} if options.get("retry_after") is not None else {}
    page = b"<html>No.</html>".ljust(options.get("size", 0))
    send(writer, options["status"], page, "text/html", **more)
    return True


async def _drip(asked: Asked, writer: Peer, options: dict[str, Any]) -> bool:
    """The first byte of an answer comes, and no other."""
    send(writer, 200, b"{", content_length="1000")
    return await _hang(asked, writer, options)


async def _truncate(asked: Asked, writer: Peer, options: dict[str, Any]) -> bool:
    """The connection ends inside the answer."""
    send(writer, 200, b'{"responseCode":1,"handle":"', content_length="1000")
    return False


async def _huge(asked: Asked, writer: Peer, options: dict[str, Any]) -> bool:
    """64 MiB of white space."""
    send(writer, 200, b"", content_length=str(64 * _MIB))
    for _ in range(64):
        writer.write(b" " * _MIB)
        await writer.drain()
    return False


@cache
def _zipped_blanks() -> bytes:
    """Zipped once: it takes 0.3 s."""
    return gzip.compress(b" " * 64 * _MIB, 1)


async def _bomb(asked: Asked, writer: Peer, options: dict[str, Any]) -> bool:
    """64 MiB of white space in 64 KiB of gzip."""
    send(writer, 200, _zipped_blanks(), content_encoding="gzip")
    return True


async def _redirect(asked: Asked, writer: Peer, options: dict[str, Any]) -> bool:
    """A redirect to `location`, else to the same place again."""
    send(writer, options.get("status", 302), b"", "text/html", location=options.get("location", asked.target))
    return True


async def _not_http(asked: Asked, writer: Peer, options: dict[str, Any]) -> bool:
    """Bytes that are no HTTP."""
    writer.write(b"\x00\x01\x02 hello\r\n\r\n")
    return False


def _answers(body: bytes | Callable[[str], object], status: int = 200, kind: str = _JSON, **more: str) -> Misbehaviour:
    async def answer(asked: Asked, writer: Peer, options: dict[str, Any]) -> bool:
        send(writer, status, body if isinstance(body, bytes) else encoded(body(asked.name)), kind, **more)
        return True

    return answer


FAULTS: Final[dict[str, Misbehaviour]] = {
    "reset": _reset,
    "close": _close,
    "hang": _hang,
    "delay": _delay,
    "status": _status,
    "drip": _drip,
    "truncate": _truncate,
    "huge": _huge,
    "bomb": _bomb,
    "redirect": _redirect,
    "not_http": _not_http,
    "garbage": _answers(b"\xfe\x00 no JSON"),
    "cookie": _answers(b"{}", set_cookie="session=1; Path=/"),
    "html": _answers(b"<!doctype html><title>Are you a robot?</title>", kind="text/html"),
    "empty": _answers(b""),
    "unknown_coding": _answers(b"{}", content_encoding="br"),
    "bad_gzip": _answers(b"{}", content_encoding="gzip"),
    "wrong_name": _answers(lambda name: {"responseCode": 100, "handle": "10.9999/another"}, 404),
    "code_2": _answers(lambda name: {"responseCode": 2, "handle": name, "message": "Cannot connect."}, 500),
    "values_no_list": _answers(lambda name: {"responseCode": 1, "handle": name, "values": {"index": 1}}),
    "deep": _answers(b'{"responseCode":1,"handle":"x","values":' + b"[" * 20_000 + b"]" * 20_000 + b"}"),
    "denies": _answers(lambda name: {"responseCode": 100, "handle": name}, 404),
    "unavailable_but_known": _answers(lambda name: {"responseCode": 100, "handle": name}, 503),
}
