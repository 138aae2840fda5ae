"""The lines of standard input: bounded, and read without a thread that would delay the end of the process."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator
from typing import Final

from app.features.lists.list_stream import wait_for_input

log = logging.getLogger(__name__)

_PIECE_BYTES: Final = 65_536


async def read_lines(descriptor: int, most: int) -> AsyncGenerator[str]:
    """The lines of a file descriptor, in UTF-8. A line of more than `most` bytes is left out and logged."""
    line = bytearray()
    is_too_long = False
    while piece := await _read(descriptor):
        *ended, rest = piece.split(b"\n")
        for part in ended:
            if is_too_long or len(line) + len(part) > most:
                log.warning("a message of more than %s bytes is left out; send less", most)
            else:
                yield (line + part).decode("utf-8", "replace") + "\n"
            line.clear()
            is_too_long = False
        line += rest
        if len(line) > most:
            is_too_long = True
            line.clear()
    if line and not is_too_long:
        yield line.decode("utf-8", "replace")


async def _read(descriptor: int) -> bytes:
    """The next bytes, empty at the end."""
    await wait_for_input(descriptor)
    return os.read(descriptor, _PIECE_BYTES)
