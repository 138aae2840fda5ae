"""`python -m tools.fuzz [--seconds N] [TARGET …]`: fuzz the targets in turn; exit status 1 for a finding.

Seeds are the files of tools/fuzz/corpus/TARGET. What atheris finds beside them is thrown away, but for the input of a
crash: it is printed and kept under var/fuzz/, to become a seed once the crash is mended.

Two targets have no corpus: `requests` sends random requests to a proxy, and `properties` runs the property tests with
random examples.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

_CORPUS: Final = Path(__file__).with_name("corpus")
_ROOT: Final = Path(__file__).resolve().parents[2]
_FINDINGS: Final = _ROOT / "var" / "fuzz"
TARGET_NAMES: Final = (
    "name",
    "finding",
    "suggestion",
    "parsing",
    "answer",
    "locations",
    "query",
    "headers",
    "stored",
    "block",
    "line",
    "retry_after",
    "lists",
    "native",
    "native_request",
    "bibtex",
    "ris",
    "registry",
)
#: Targets of `tools.fuzz.services`, which start parts of the program.
SERVICE_NAMES: Final = ("admin", "tools", "ways")
#: Searches of `tools.fuzz.searches`, which have no corpus.
SEARCH_NAMES: Final = ("requests", "properties")
_ALL: Final = (*TARGET_NAMES, *SERVICE_NAMES, *SEARCH_NAMES)
#: Longest input, in bytes, and the longest time that one may take, in seconds.
_LONGEST: Final = 8_192
_PATIENCE: Final = 10


def main() -> int:
    """Run each target in a process of its own: atheris ends the process that it fuzzes in."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description="Fuzz what reads bytes of strangers.")
    parser.add_argument("target", nargs="*", help=f"what to fuzz (default: all): {', '.join(_ALL)}")
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together (default 60)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    targets = chosen.target or list(_ALL)
    if unknown := set(targets) - set(_ALL):
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    seconds = max(1, chosen.seconds // len(targets))
    if chosen.inside and targets[0] in SEARCH_NAMES:
        return _search(targets[0], seconds)
    if chosen.inside:
        _fuzz(targets[0], seconds)
    found = [target for target in targets if not _is_clean(target, seconds)]
    print(f"fuzz: {len(targets) - len(found)} of {len(targets)} targets without a finding")
    return 1 if found else 0


def _is_clean(target: str, seconds: int) -> bool:
    command = [sys.executable, "-m", "tools.fuzz", "--inside", "--seconds", str(seconds), target]
    done = subprocess.run(command, check=False, cwd=_ROOT, capture_output=True, text=True, errors="replace")
    lines = (done.stderr + done.stdout).splitlines()
    if done.returncode:
        print(f"{target}: FOUND", *lines[-40:], sep="\n")
        return False
    print(f"{target}: {next((one for one in reversed(lines) if one.startswith('Done')), 'ended')}")
    return True


def _search(name: str, seconds: int) -> int:
    from tools.fuzz.searches import SEARCHES  # noqa: PLC0415 - the other targets do without its imports

    return 0 if SEARCHES[name](seconds) else 1


def _fuzz(target: str, seconds: int) -> None:
    import atheris  # noqa: PLC0415 - only the process that fuzzes has its imports instrumented

    with atheris.instrument_imports(include=["doi_names", "handle_protocol", "doi_proxy"]):
        if target in SERVICE_NAMES:
            from tools.fuzz.services import SERVICES as targets  # noqa: PLC0415
        else:
            from tools.fuzz.targets import TARGETS as targets  # noqa: PLC0415

    def once(data: bytes) -> None:
        try:
            targets[target](data)
        except Exception:
            print(f"input: {data!r}", file=sys.stderr, flush=True)
            raise

    _FINDINGS.mkdir(parents=True, exist_ok=True)
    # The first folder is where libFuzzer writes what it finds interesting.
    with tempfile.TemporaryDirectory() as work:
        limits = [f"-max_total_time={seconds}", f"-max_len={_LONGEST}", f"-timeout={_PATIENCE}", "-verbosity=1"]
        options = [*limits, f"-artifact_prefix={_FINDINGS}/{target}-"]
        atheris.Setup([sys.argv[0], *options, work, str(_CORPUS / target)], once)
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
