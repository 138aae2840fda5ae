"""Removes each feature from a copy of the program, with those that need it, and sees the rest start, answer and pass.

`python -m tools.removable [FEATURE ...]` prints a line for each feature, and exits with 1 if one falls short. If more
than MOST_OTHERS others go with one, it falls short too, and what needs what is printed.
`--changed` tries those that changed since a base (`tools/changes.py`). The black-box kit, if it is beside the checkout,
and the quick tests are shared out: each feature replays some vectors and runs some files, and all features run all.
"""

from __future__ import annotations

import ast
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from doi_proxy.assembly.features import installed
from tests.ports import free_port
from tools.changes import ROOT, find_base, list_changes

KIT: Final = ROOT.parent / "shared" / "conformance"
#: Copies that are tried at the same time.
AT_ONCE: Final = 2
#: The features that may go with one.
MOST_OTHERS: Final = 2
#: Seconds until a process must listen, and until a command must end.
START_TIMEOUT: Final = 60.0
COMMAND_TIMEOUT: Final = 120.0
#: The beginning of the ids of the vectors that need a feature. A row of another one is never left out.
LEFT_OUT: Final[Mapping[str, tuple[str, ...]]] = {}
#: Each feature replays the vectors of one of so many shares, and those of the features on either side replay others.
SHARES: Final = 4
#: Folders of tests/ that hold without any one feature. Tests of the other folders use settings and paths of many.
TESTED: Final = ("doi_names", "handle_protocol", "resolver", "upstream")
#: Requests, and the status of their answers.
REQUESTS: Final = (("/10.1000/182", 302), ("/api/handles/10.1000/182", 200), ("/10.1000/does-not-exist", 404))
RECORD: Final = (
    b'{"handle":"10.1000/182","values":[{"index":1,"type":"URL","data":{"format":"string",'
    b'"value":"https://example.org/"},"ttl":86400,"timestamp":"2026-01-01T00:00:00Z"}]}\n'
)


def dependents(name: str) -> frozenset[str]:
    """A feature, and those that need it, directly or through others."""
    gone = {name}
    # A feature comes after those that it needs.
    for feature in installed():
        if gone.intersection(feature.needs):
            gone.add(feature.name)
    return frozenset(gone)


def find_heavy(name: str) -> str:
    """Why more than MOST_OTHERS features go with one, as edges; "" if not."""
    gone = dependents(name)
    if len(gone) <= 1 + MOST_OTHERS:
        return ""
    edges = (f"{each.name} -> {needed}" for each in installed() for needed in each.needs if needed in gone)
    return f"{len(gone) - 1} others go with it, by {', '.join(edges)}; move what they need below the features"


def try_without(name: str) -> str:
    """What falls short without a feature, "" if nothing does."""
    if heavy := find_heavy(name):
        return heavy
    with TemporaryDirectory(prefix="removable.") as folder:
        place = Path(folder)
        # With the bytecode files, which stay valid: a program that compiles itself takes 3 s to start.
        shutil.copytree(ROOT / "app", place / "app")
        for feature in dependents(name):
            shutil.rmtree(place / "app" / "doi_proxy" / "features" / feature)
        return _try(place, name) or _run_tests(place, name)


def _try(place: Path, name: str) -> str:
    commands: list[tuple[str, ...]] = [("--help",), ("config",)]
    if "setup" not in dependents(name):
        commands.append(("check", "--offline"))
    try:
        for arguments in commands:
            _run(place, ("-m", "doi_proxy", *arguments))
        with _upstream(place) as upstream, _proxy(place, upstream) as port:
            return _find_wrong_answer(port) or _replay(port, name)
    except (OSError, HTTPException, subprocess.SubprocessError, RuntimeError) as error:
        return str(error)


def _run_tests(place: Path, name: str) -> str:
    """Run the feature's share of the quick tests that import none of the features that are gone."""
    names = [feature.name for feature in installed()]
    files = [file for file in _quick_tests()[names.index(name) :: len(names)] if not _imports(file, dependents(name))]
    for entry in ROOT.iterdir():
        if entry.name == "tests":
            shutil.copytree(entry, place / "tests", ignore=shutil.ignore_patterns("node_modules"))
        elif entry.name != "app" and not entry.name.startswith("."):
            (place / entry.name).symlink_to(entry)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not process and not nightly"]
    done = subprocess.run(
        [*command, *map(str, files)], cwd=place, env=_environment(place), timeout=COMMAND_TIMEOUT,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    # 5: no test was selected.
    return "" if done.returncode in (0, 5) else f"tests: {done.stdout[-4_000:]}{done.stderr[-500:]}"


def _quick_tests() -> list[Path]:
    return sorted(file.relative_to(ROOT) for folder in TESTED for file in (ROOT / "tests" / folder).rglob("test_*.py"))


def _imports(file: Path, gone: frozenset[str]) -> bool:
    """Whether a file of the tests imports one of these features or their tests, directly or through other tests."""
    seen, waiting = set[Path](), [file, *(parent / "conftest.py" for parent in file.parents)]
    while waiting:
        path = waiting.pop()
        if path in seen or not (ROOT / path).is_file():
            continue
        seen.add(path)
        for module in _modules(path):
            parts = module.split(".")
            if parts[0] in ("doi_proxy", "tests") and parts[1:2] == ["features"] and gone.intersection(parts[2:3]):
                return True
            if parts[0] == "tests":
                waiting.append(Path(*parts).with_suffix(".py"))
    return False


@cache
def _modules(path: Path) -> frozenset[str]:
    """The modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return frozenset(found)


def _run(place: Path, arguments: Sequence[str]) -> None:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=place, env=_environment(place), timeout=COMMAND_TIMEOUT,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ends with {done.returncode}:\n{done.stdout}{done.stderr}")


def _environment(place: Path, **settings: str) -> dict[str, str]:
    # The copy goes before the installed program.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DOI_PROXY_")}
    has_file = place.joinpath("app", "doi_proxy", "features", "sqlite").is_dir()
    store = f"sqlite:///{place}/store.sqlite3" if has_file else "memory:"
    # Without a contact, `check` ends with a warning.
    contact = "mailto:doi@example.org"
    path = f"{place / 'app'}:{place}"
    own = {"PYTHONPATH": path, "DOI_PROXY_STORE_URL": store, "DOI_PROXY_UPSTREAM_CONTACT": contact}
    return {**kept, **own, **settings}


@contextmanager
def _upstream(place: Path) -> Iterator[int]:
    """A stand-in for the upstream: that of the kit, or that of the tests."""
    if KIT.is_dir():
        arguments = [str(KIT / "upstream.py"), "--records", str(KIT / "records.jsonl")]
    else:
        (place / "records.ndjson").write_bytes(RECORD)
        arguments = ["-m", "tests.fake_upstream", "--records", str(place / "records.ndjson")]
    with _listening(arguments, ROOT, dict(os.environ), place / "upstream.log") as port:
        yield port


@contextmanager
def _proxy(place: Path, upstream: int) -> Iterator[int]:
    url = f"http://127.0.0.1:{upstream}"
    environment = _environment(place, DOI_PROXY_UPSTREAM_URL=url, DOI_PROXY_UPSTREAM_RATE="100000")
    arguments = ["-m", "doi_proxy", "serve", "--host", "127.0.0.1"]
    with _listening(arguments, place, environment, place / "proxy.log") as port:
        yield port


@contextmanager
def _listening(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> Iterator[int]:
    """Run a process that listens on a free port, and end it."""
    port = free_port()
    command = [sys.executable, *arguments, "--port", str(port)]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        ) as process,
    ):
        try:
            _wait_for_port(process, port, log)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(COMMAND_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_TIMEOUT
    while process.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"nothing listens; its last lines are:\n{log.read_text(errors='replace')[-2_000:]}")


def _find_wrong_answer(port: int) -> str:
    for path, status in REQUESTS:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", path)
            found = connection.getresponse().status
        finally:
            connection.close()
        if found != status:
            return f"{path}: {found} instead of {status}"
    return ""


def _replay(port: int, name: str) -> str:
    """Replay the feature's share of the vectors of the kit, if it is there."""
    if not KIT.is_dir():
        return ""
    left_out = LEFT_OUT.get(name, ())
    with TemporaryDirectory(prefix="vectors.") as folder:
        vectors = Path(folder) / "vectors.jsonl"
        lines = (KIT / "vectors.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        number = [feature.name for feature in installed()].index(name)
        chosen = [line for line in lines[number % SHARES :: SHARES] if not _is_about(line, left_out)]
        vectors.write_text("".join(chosen), encoding="utf-8")
        command = [sys.executable, str(KIT / "run.py"), "--base", f"http://127.0.0.1:{port}", "--vectors", str(vectors)]
        done = subprocess.run(command, timeout=COMMAND_TIMEOUT, capture_output=True, text=True, check=False)
    return f"vectors: {done.stdout[-2_000:]}{done.stderr[-500:]}" if done.returncode else ""


def _is_about(line: str, beginnings: Sequence[str]) -> bool:
    return any(f'"id": "{one}' in line or f'"id":"{one}' in line for one in beginnings)


def find_changed(changes: Iterable[str]) -> list[str]:
    """The features whose folder has a changed path."""
    folders = {tuple(Path(path).parts[:4]) for path in changes}
    return [feature.name for feature in installed() if ("app", "doi_proxy", "features", feature.name) in folders]


def main(chosen: Sequence[str]) -> int:
    """Try each feature, or those that are chosen. Exit status 1 if one falls short."""
    names = list(chosen) or [feature.name for feature in installed()]
    if chosen == ["--changed"]:
        names = find_changed(list_changes(find_base()))
        print(f"removable: {len(names)} features changed since {find_base()}", flush=True)
    status = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name, problem in zip(names, pool.map(try_without, names), strict=True):
            others = sorted(dependents(name) - {name})
            print(f"{name:16}{'FAILED' if problem else 'ok':8}{'with ' + ', '.join(others) if others else ''}".rstrip())
            if problem:
                print(problem)
                status = 1
            sys.stdout.flush()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
