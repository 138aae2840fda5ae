"""Forks run the tests of all files, and nothing that happens in one is lost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = [pytest.mark.repository, pytest.mark.process]

_ROOT: Final = Path(__file__).resolve().parents[1]
_FILES: Final = {
    "pytest.ini": "[pytest]\n",
    "conftest.py": """
import os
import pytest

@pytest.fixture(scope="session", autouse=True)
def process(pytestconfig):
    pytestconfig.add_cleanup(lambda: open(f"cleaned-{os.getpid()}", "w").close())
    yield os.getpid()
    print(f"session ended in {os.getpid()}", file=open(f"ended-{os.getpid()}", "w"))
""",
    "test_passes.py": "def test_a(process): ...\ndef test_b(tmp_path): ...\n",
    "test_fails.py": "def test_c():\n    print('printed')\n    assert 1 == 2\ndef test_d(): ...\n",
    "test_skips.py": "import pytest\ndef test_e(): pytest.skip('no program')\n",
}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    for name, text in _FILES.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "tools.parallel", "--forks", "2", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_reports_of_all_forks_are_printed_and_their_sessions_end(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 1
    assert re.search("1 failed, 3 passed, 1 skipped", done.stdout)
    assert re.search(r"^E +assert 1 == 2$", done.stdout, re.MULTILINE)
    assert "printed" in done.stdout
    assert "no program" in done.stdout
    ended = [path.name.partition("-")[2] for path in tmp_path.glob("ended-*")]
    assert len(ended) in (1, 2)
    assert all((tmp_path / f"cleaned-{process}").exists() for process in ended)


def test_a_test_whose_process_ends_has_failed_with_those_after_it(tmp_path: Path) -> None:
    (tmp_path / "test_ends.py").write_text("import os\ndef test_f(): os._exit(3)\ndef test_g(): ...\n")
    done = run(tmp_path)
    assert re.search("3 failed, 3 passed, 1 skipped", done.stdout)
    assert done.stdout.count("not run to its end: a process of the tests ended with status [3]") == 2


def test_x_ends_at_the_first_failure(tmp_path: Path) -> None:
    (tmp_path / "test_waits.py").write_text("import signal\ndef test_h(): signal.pause()\n")
    done = run(tmp_path, "-x")
    assert "stopping after 1 failures" in done.stdout
    assert "1 failed" in done.stdout


def test_the_files_that_took_longest_in_the_last_run_are_first(tmp_path: Path) -> None:
    run(tmp_path)
    record = tmp_path / ".pytest_cache" / "v" / "forks" / "seconds"
    assert set(json.loads(record.read_text())) == {"test_fails.py", "test_passes.py", "test_skips.py"}
    record.write_text(json.dumps({"test_fails.py": 1, "test_passes.py": 3, "test_skips.py": 2}))
    collected = run(tmp_path, "--collect-only").stdout
    assert re.findall(r"^(test_.*)\.py::test_[ace]$", collected, re.MULTILINE) == [
        "test_passes",
        "test_skips",
        "test_fails",
    ]
