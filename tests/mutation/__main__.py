"""`python -m tests.mutation [--mutants N] [--seed N] [FOLDER …]`: do the tests of a folder notice a change of its code?

Each mutant is one changed operator, constant or branch. It is written into a temporary copy of the repository, and the
folder's tests run there until one fails: first the files that import the changed module, the fast ones before the slow
ones. The working tree is only read. A folder whose tests fail without a change has no mutants tried. Exit status 1 if
there is such a folder, or if a mutant survives that equivalent.txt does not list.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path
from typing import Final

from tests.mutation.mutants import Mutant, build_mutant, count_mutants

FOLDERS: Final = ("doi", "handle", "resolver", "cache", "upstream")
_ROOT: Final = Path(__file__).resolve().parents[2]
_COPIED: Final = ("app", "config", "docs", "tests", "pyproject.toml")
#: Lines `path: before -> after: reason`.
_EQUIVALENT: Final = Path(__file__).with_name("equivalent.txt")
#: A mutant may take this many times as long as the tests without a change, and this many seconds more.
_SLOWER, _EXTRA_SECONDS = 4, 30
#: What these tests use. Without the other installed plugins, pytest starts in 2.0 instead of 5.3 s of CPU.
_PLUGINS: Final = ("-p", "anyio", "-p", "_hypothesis_pytestplugin")
#: Address space of each process, in bytes: a mutant may allocate without end.
_MEMORY: Final = 8 << 30


def main() -> int:
    """Try the mutants one after the other and print those that no test noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Do tests notice changed code?")
    parser.add_argument("folder", nargs="*", help=f"folders of app/ (default: {', '.join(FOLDERS)})")
    parser.add_argument("--mutants", type=int, default=30, help="for all folders together (default 30)")
    parser.add_argument("--seed", type=int, default=1, help="which mutants are drawn (default 1)")
    options = parser.parse_args()
    folders = options.folder or list(FOLDERS)
    if missing := [folder for folder in folders if not (_ROOT / "app" / folder).is_dir()]:
        parser.error(f"app/ has no folder {', '.join(missing)}")
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    with tempfile.TemporaryDirectory() as copy:
        _copy_repository(Path(copy))
        shares = _share(options.mutants, len(folders))
        counts = [try_folder(Path(copy), *each, options.seed) for each in zip(folders, shares, strict=True)]
    noticed, survived = (sum(count[part] for count in counts if count is not None) for part in (0, 1))
    print(f"mutate: tests noticed {noticed} of {noticed + survived} mutants that are not listed as equivalent")
    untried = [folder for folder, count in zip(folders, counts, strict=True) if count is None]
    if untried:
        print(f"mutate: tests fail without a change in {', '.join(untried)}: mend them first")
    return 1 if survived or untried else 0


def _share(number: int, parts: int) -> list[int]:
    return [number // parts + (place < number % parts) for place in range(parts)]


def try_folder(copy: Path, folder: str, number: int, seed: int) -> tuple[int, int] | None:
    """Try mutants of one folder. Returns how many the tests noticed, and how many survived and are not listed.

    None if the tests fail without a change.
    """
    equivalent = _EQUIVALENT.read_text(encoding="utf-8")
    seconds, output = _time_tests(copy, folder)
    if output:
        print(f"{folder}: its tests fail without a change\n{output}", flush=True)
        return None
    noticed = survived = 0
    for path, mutant in _draw_mutants(copy, folder, number, seed):
        change = f"{mutant.before} -> {mutant.after}"
        if f"{path}: {change}: " in equivalent:
            print(f"{path}:{mutant.line} {change} (equivalent)", flush=True)
        elif _notices(copy, path, mutant, seconds):
            noticed += 1
        else:
            survived += 1
            print(f"{path}:{mutant.line} {change}", flush=True)
    print(f"{folder}: {noticed} of {noticed + survived}", flush=True)
    return noticed, survived


def _copy_repository(copy: Path) -> None:
    for name in _COPIED:
        if (_ROOT / name).is_dir():
            shutil.copytree(_ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        else:
            shutil.copy2(_ROOT / name, copy / name)


def _draw_mutants(copy: Path, folder: str, number: int, seed: int) -> list[tuple[str, Mutant]]:
    """Draw mutants of a folder's modules. The same seed and the same code give the same mutants."""
    sources = {
        path.relative_to(copy).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((copy / "app" / folder).rglob("*.py"))
    }
    places = [(path, place) for path, source in sources.items() for place in range(count_mutants(source))]
    drawn = random.Random(f"{seed} {folder}").sample(places, min(number, len(places)))
    return [(path, build_mutant(sources[path], place)) for path, place in drawn]


def _time_tests(copy: Path, folder: str) -> tuple[dict[str, float], str]:
    """Run the tests of a folder without a change.

    Returns the seconds of each of its files, and what pytest printed if a test failed, else "".
    """
    report = copy / "report.xml"
    # This form of the report names the files.
    options = [f"--junit-xml={report}", "--override-ini=junit_family=xunit1"]
    if output := _run_tests(copy, [f"tests/{folder}", *options], None):
        return {}, output
    seconds: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).iter("testcase"):
        seconds[case.attrib["file"]] += float(case.attrib["time"])
    return seconds, ""


def _notices(copy: Path, path: str, mutant: Mutant, seconds: dict[str, float]) -> bool:
    module = path.removesuffix(".py").replace("/", ".")
    parent, _, name = module.rpartition(".")
    imports = (f"from {module} import", f"from {parent} import {name}")

    def place(file: str) -> tuple[bool, float]:
        text = (copy / file).read_text(encoding="utf-8")
        return not any(line in text for line in imports), seconds[file]

    target = copy / path
    original = target.read_bytes()
    try:
        _write_module(target, mutant.source.encode())
        return bool(_run_tests(copy, sorted(seconds, key=place), sum(seconds.values()) * _SLOWER + _EXTRA_SECONDS))
    finally:
        _write_module(target, original)


def _write_module(path: Path, source: bytes) -> None:
    """Write a module and drop its bytecode, which Python checks by size and whole seconds alone."""
    path.write_bytes(source)
    for bytecode in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        bytecode.unlink()


def _run_tests(copy: Path, tests: list[str], limit: float | None) -> str:
    """Run tests until one fails. Returns what pytest printed if one did, and nothing if all passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *_PLUGINS, *tests]
    # The same examples of Hypothesis each time; the copy before the installed program; no other plugins.
    settings = {"CI": "true", "PYTHONPATH": str(copy), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        run = subprocess.Popen(
            command,
            cwd=copy,
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = run.wait(limit)
        except subprocess.TimeoutExpired:
            status = 1
        finally:
            _end_group(run)
        output.seek(0)
        return (output.read() or "no output") if status else ""


def _end_group(run: subprocess.Popen[bytes]) -> None:
    """End the tests and the servers that they started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)
    run.wait()


if __name__ == "__main__":
    sys.exit(main())
