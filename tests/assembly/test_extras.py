"""A default installation has none of the optional libraries: it works, and names the pip command for a missing one."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.process

#: Python imports a module of this name at its start, also in the processes that an import starts.
BLOCKER: Final = """
import sys

for name in ("cryptography", "isal", "maxminddb", "mcp", "mcp_types", "opentelemetry.sdk"):
    sys.modules[name] = None
"""
WORK: Final = {"DOI": "10.5555/one", "resource": {"primary": {"URL": "https://example.org/one"}}, "indexed": {}}


def run(folder: Path, *arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """A command of the program, or Python code, without the optional libraries."""
    (folder / "sitecustomize.py").write_text(BLOCKER)
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    command = ["-c", code] if code else ["-m", "doi_proxy", *arguments]
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=60, env=environment, cwd=folder, check=False
    )


def sentence(feature: str, library: str, extra: str) -> str:
    return (
        f"the feature {feature} needs the package {library}, which is not installed; run: "
        f"pip install 'doi-proxy[{extra}]'"
    )


NATIVE: Final = sentence("native", "cryptography", "native")


def test_a_default_installation_starts_and_imports_tables(tmp_path: Path) -> None:
    code = (
        "from doi_proxy.main import create; from doi_proxy.assembly.settings import Settings\n"
        "create(Settings(store_url='memory:')); print('created')"
    )
    done = run(tmp_path, code=code)
    assert done.stdout == "created\n", done.stderr
    store = f"sqlite:///{tmp_path}/store.sqlite3"
    (tmp_path / "names.csv.gz").write_bytes(gzip.compress(b"doi,url\n10.5555/one,https://example.org/one\n"))
    done = run(tmp_path, "cache", "import", "--store-url", store, "names.csv.gz")
    assert (done.returncode, done.stdout.startswith("1 records: new 1,")) == (0, True), done.stderr
    (tmp_path / "names.txt").write_text("10.5555/one\n")
    done = run(tmp_path, "resolve", "--mode", "sealed", "--store-url", store, "names.txt")
    assert (done.returncode, "https://example.org/one" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--upstream-routes", "10.5555=hdl://127.0.0.1:9"),
        ("doctor", "--upstream", "--upstream-url", "hdl://127.0.0.1:9"),
    ],
)
def test_handle_servers_need_the_extra_native(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = run(tmp_path, *arguments, "--store-url", "memory:")
    assert done.returncode == 2
    assert NATIVE in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_library_is_reported_once(tmp_path: Path) -> None:
    done = run(tmp_path, "check", "--upstream-url", "hdl://127.0.0.1:9", "--store-url", "memory:")
    assert (done.returncode, done.stdout.count(NATIVE)) == (2, 1), done.stderr


def test_a_sealed_resolver_needs_no_handle_servers(tmp_path: Path) -> None:
    sealed = ("--mode", "sealed", "--upstream-url", "hdl://127.0.0.1:9", "--store-url", "memory:")
    done = run(tmp_path, "check", "--offline", *sealed)
    assert "pip install" not in done.stdout + done.stderr


def test_files_of_agencies_need_the_extra_registry(tmp_path: Path) -> None:
    (tmp_path / "works.json").write_text(json.dumps(WORK))
    done = run(tmp_path, "cache", "import", "--store-url", f"sqlite:///{tmp_path}/store.sqlite3", "works.json")
    assert (done.returncode, done.stderr) == (2, f"doi-proxy: {sentence('registry', 'isal', 'registry')}\n")


def test_traces_and_countries_name_their_extras(tmp_path: Path) -> None:
    done = run(tmp_path, "check", "--offline", "--store-url", "memory:", "--otel-endpoint", "http://127.0.0.1:9/")
    assert done.returncode == 2
    assert sentence("tracing", "opentelemetry.sdk", "otel") in done.stdout
    done = run(tmp_path, "check", "--offline", "--store-url", "memory:", "--country-database", "countries.mmdb")
    assert done.returncode == 2
    assert sentence("country", "maxminddb", "country") in done.stdout


def test_a_service_imports_no_library_and_no_module_of_a_feature_that_is_off() -> None:
    code = (
        "import sys, doi_proxy.commands.main\nfrom doi_proxy.main import create\n"
        "from doi_proxy.assembly.settings import Settings\n"
        "create(Settings(store_url='memory:')); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    found = done.stdout.split()
    libraries = ("mcp", "opentelemetry.sdk", "opentelemetry.exporter")
    assert [name for name in found if name.startswith(libraries)] == []
    metadata = {name.removeprefix("doi_proxy.features.metadata.") for name in found if "features.metadata." in name}
    # The page of references reads titles with pure modules of the feature metadata. None of them fetches.
    assert metadata <= {"feature", "cited", "match", "words", "work"}
