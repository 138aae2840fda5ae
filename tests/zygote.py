"""Starts of the program by fork, from a process that has imported it: the zygote.

An interpreter that starts `python -m doi_proxy serve` spends 1.3 s of processor time on imports; two forks take 30 ms.
Texts and templates, which a process reads once, are read before the forks as well.

To a test, the forked process is what `subprocess` starts: its own child, with the given arguments, environment and
streams.
"""

from __future__ import annotations

import ctypes
import gc
import json
import multiprocessing
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

#: Imported before the first start of this command: the library `mcp` takes 1.5 s.
LATE: Final = {"mcp": "doi_proxy.features.assistants.server"}
#: The modules that are started by fork if a test starts `python -m` and their name.
FORKED: Final = ("doi_proxy", "tests.constants", "tests.fake_upstream", "tests.hostile.upstream")
#: Variables that an interpreter reads when it starts. A process with other ones has a start of its own.
_OF_INTERPRETERS: Final = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "MALLOC_", "COVERAGE_")
#: This one makes every start a real one.
REAL_STARTS: Final = "REAL_STARTS"
_ROOT: Final = Path(__file__).resolve().parents[1]
_SET_CHILD_SUBREAPER: Final = 36
_LENGTH_BYTES: Final = 4
_STREAMS: Final = 3


class Zygote:
    """Starts processes by fork. `start` has the arguments of `_posixsubprocess.fork_exec`."""

    def __init__(self, start: Callable[..., int]) -> None:
        self._start_really = start
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *given: Any) -> int:
        """The id of a new child of this process."""
        request = _request(given)
        if request is None:
            return self._start_really(*given)
        streams = [end if end >= 0 else number for number, end in enumerate((given[6], given[9], given[11]))]
        with self._lock, _parent_of_orphans():
            return self._fork(request, streams)

    def _fork(self, request: Mapping[str, Any], streams: Sequence[int]) -> int:
        if self._channel is None:
            self._channel = self._born()
        body = json.dumps(request).encode()
        socket.send_fds(self._channel, [len(body).to_bytes(_LENGTH_BYTES)], streams)
        self._channel.sendall(body)
        return int.from_bytes(_read(self._channel, _LENGTH_BYTES))

    def _born(self) -> socket.socket:
        ours, its = socket.socketpair()
        with its:
            command = [sys.executable, "-m", "tests.zygote", str(its.fileno())]
            self._process = subprocess.Popen(command, cwd=_ROOT, pass_fds=[its.fileno()])
        return ours

    def close(self) -> None:
        """End the zygote. What it has started goes on: these are children of this process."""
        if self._channel is not None and self._process is not None:
            self._channel.close()
            self._process.wait()


def _request(given: Sequence[Any]) -> dict[str, Any] | None:
    """What to fork, or None for a start that has to be real."""
    arguments = [os.fsdecode(argument) for argument in given[0]]
    folder = os.fsdecode(given[4] or Path.cwd())
    asks_more = given[3] != (given[13],) or given[16] >= 0 or given[20] >= 0 or any(given[17:20]) or given[21]
    ours = [sys.executable, "-m"]
    if arguments[:2] != ours or arguments[2] not in FORKED or asks_more or Path(folder).resolve() != _ROOT:
        return None
    variables = (os.fsdecode(line).partition("=") for line in given[5] or ())
    environment = {name: value for name, _, value in variables} if given[5] is not None else dict(os.environ)
    if _of_interpreter(environment) != _of_interpreter(os.environ):
        return None
    return {"arguments": arguments[2:], "folder": folder, "environment": environment, "session": bool(given[15])}


def _of_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_OF_INTERPRETERS)}


@contextmanager
def _parent_of_orphans() -> Iterator[None]:
    """In this block, an orphan among the descendants of this process becomes its child."""
    library = ctypes.CDLL(None)
    library.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        library.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def can_fork() -> bool:
    """Whether this system has what a zygote needs, and the processes need not be measured for `make cov`."""
    measured = any(name.startswith("COVERAGE_") for name in os.environ)
    return sys.platform == "linux" and REAL_STARTS not in os.environ and not measured


def main(descriptor: int) -> None:
    """Fork at each request, until the other end of the channel is closed."""
    _import_program()
    with socket.socket(fileno=descriptor) as channel:
        while True:
            head, streams, _, _ = socket.recv_fds(channel, _LENGTH_BYTES, _STREAMS)
            if not head:
                return
            request = json.loads(_read(channel, int.from_bytes(head)))
            if late := LATE.get(" ".join(request["arguments"][1:2])):
                import_module(late)
            if not (child := _fork_orphan()):
                break
            for stream in streams:
                os.close(stream)
            channel.sendall(child.to_bytes(_LENGTH_BYTES))
    # Only a forked process comes here. It has left the loop, so it ends as an interpreter does.
    _become(request, streams)


def _import_program() -> None:
    import_module("doi_proxy.commands.imports").skip_httpx_command_line()
    late = tuple(name.rpartition(".")[0] for name in LATE.values())
    for name in ("doi_names", "handle_protocol", "doi_proxy"):
        _import_modules(name, late)
    _read_pages()
    gc.collect()
    gc.freeze()


def _import_modules(package: str, late: tuple[str, ...]) -> None:
    for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
        if not module.name.endswith("__main__") and not module.name.startswith(late):
            import_module(module.name)


def _read_pages() -> None:
    """Read the texts and compile the templates. Of 0.29 s of processor time, a proxy that starts spends 0.09 s."""
    settings = import_module("doi_proxy.assembly.settings").Settings()
    templates = import_module("doi_proxy.assembly.core").build_pages(settings)._look.templates
    for name in templates.list_templates(extensions=["html"]):
        templates.get_template(name)


def _fork_orphan() -> int:
    """Fork twice, and end the process between. Returns the id of the second fork, and 0 in it."""
    reading, writing = os.pipe()
    if between := os.fork():
        os.close(writing)
        child = int.from_bytes(os.read(reading, _LENGTH_BYTES))
        os.close(reading)
        os.waitpid(between, 0)
        return child
    if child := os.fork():
        os.write(writing, child.to_bytes(_LENGTH_BYTES))
        os._exit(0)
    os.close(reading)
    os.close(writing)
    return 0


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Run the module that was requested, as `python -m` does."""
    if request["session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = _reopen(sys.stdin, 0), _reopen(sys.stdout, 1), _reopen(sys.stderr, 2)
    os.environ.clear()
    os.environ.update(request["environment"])
    # multiprocessing draws one when it is imported.
    multiprocessing.current_process().authkey = os.urandom(32)
    module, *sys.argv[1:] = request["arguments"]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _reopen(old: Any, number: int) -> Any:
    """The standard stream again: an interpreter chooses its buffer by what the descriptor is at the start."""
    new = os.fdopen(number, old.mode, encoding=old.encoding, errors=old.errors, closefd=False)
    if number:
        new.reconfigure(line_buffering=number == 2 or new.line_buffering, write_through=old.write_through)
    return new


def _read(channel: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        part = channel.recv(size - len(read))
        if not part:
            raise EOFError("the other end has closed the channel")
        read += part
    return read


if __name__ == "__main__":
    main(int(sys.argv[1]))
