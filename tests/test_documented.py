"""The documentation and the program agree, and README's commands print what README shows."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import pytest
from pydantic_core import PydanticUndefined

from bench.journeys import trace_alone
from doi_names.errors import InvalidName
from doi_proxy.assembly.features import installed
from doi_proxy.assembly.settings import Settings, load
from doi_proxy.commands.main import create_parser
from doi_proxy.errors import CouldNotVerify, DoiProxyError, UnreadableName, as_failure, list_errors
from doi_proxy.system.options import ENV_PREFIX, variable
from doi_proxy.web.request_path import OPENURL_PATH, STATIC_PATH, WHICH_RA_PATHS
from tests.cluster.processes import Proxy
from tests.test_architecture import IMPORT_RULE

pytestmark = pytest.mark.repository

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "docs/decisions/*.md", "docs/vectors/*.md")
    for path in ROOT.glob(pattern)
    if path.is_file()
)
#: The address that README shows; the port is that of `make run`.
SHOWN_ADDRESS: Final = "http://127.0.0.1:8000"
#: For one curl to end, in seconds.
DEADLINE: Final = 60

#: `make target` where a command stands: at a line's start or in back quotes, not in prose ("we make sure").
COMMAND: Final = re.compile(r"(?:^\s*(?:\$ )?|`)make ([a-z]+)(?=[\s`]|$)", re.MULTILINE)
TARGET: Final = re.compile(r"^([a-z]+):", re.MULTILINE)
PHONY: Final = re.compile(r"^\.PHONY: (.*)$", re.MULTILINE)
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
SOURCE_FILE: Final = re.compile(r"`((?:app|docs|tests|tools|config|requirements)/[^`\s*…]+)`")
CONSOLE: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: A block of code without its marks, and the commands of doi-proxy in it, after a prompt and variables.
BLOCK: Final = re.compile(r"^ *```(?:sh|console)?\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
DOI_PROXY: Final = re.compile(
    r"^ *(?:\$ )?(?:runuser -u doi-proxy -- )?(?:[A-Z_]+=(?:\"[^\"]*\"|\S+) )*"
    r"doi-proxy ([a-z].*?)(?: (?:[0-9]?>|<|&|\||;).*)?$",
    re.MULTILINE,
)
SUBCOMMAND: Final = re.compile(r"(?:`|^|/)doi-proxy ([a-z]+)", re.MULTILINE)


def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def makefile() -> str:
    return text_of("Makefile")


def settings_in(text: str, pattern: str) -> set[str]:
    return set(re.findall(pattern, text))


# --- Commands of make ---------------------------------------------------------------------------------------------


def test_every_make_target_that_the_readme_names_is_in_the_makefile() -> None:
    named = set(COMMAND.findall(text_of("README.md")))
    assert {"run", "demo"} <= named
    assert named <= set(TARGET.findall(makefile()))


def test_every_make_target_that_contributing_names_is_in_the_makefile() -> None:
    named = set(COMMAND.findall(text_of("CONTRIBUTING.md")))
    assert {"run", "test", "check", "bench", "lock"} <= named <= set(TARGET.findall(makefile()))


def test_every_make_target_is_phony_and_has_a_line_in_the_makefile_s_help() -> None:
    targets = set(TARGET.findall(makefile()))
    assert set(" ".join(PHONY.findall(makefile())).split()) == targets
    helped = set(re.findall(r"^#   make ([a-z]+) ", makefile(), re.MULTILINE))
    assert helped == targets - {"help"}


# --- Settings -----------------------------------------------------------------------------------------------------


def generator() -> ModuleType:
    """docs/generate.py, imported by its path, because another package may be named "docs"."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_files_made_from_the_settings_are_up_to_date() -> None:
    different = [str(path) for path, made in generator().generated().items() if text_of(str(path)) != made]
    assert different == [], "run: .venv/bin/python docs/generate.py"


def test_every_setting_has_its_variable_and_its_flag_in_the_documentation_and_no_other_is_there() -> None:
    page = text_of("docs/settings.md")
    documented = set(
        re.findall(
            rf"^`[a-z_0-9]+` in `\[[a-z]+\]`, `({ENV_PREFIX}[A-Z_0-9]+)`, `(--[a-z0-9-]+)`: ", page, re.MULTILINE
        )
    )
    assert documented == {(variable(name), "--" + name.replace("_", "-")) for name in Settings.model_fields}


def test_every_setting_has_a_sentence_that_says_what_it_is() -> None:
    sentences = {name: field.description or "" for name, field in Settings.model_fields.items()}
    assert [name for name, sentence in sentences.items() if not re.fullmatch(r"[A-Z].*\.", sentence)] == []


def test_the_settings_file_loads_to_the_defaults_as_it_stands() -> None:
    assert load({}, {}, ROOT / "config/doi-proxy.toml") == Settings()


def test_every_line_of_the_settings_file_without_its_comment_sign_is_the_default(tmp_path: Path) -> None:
    lines = text_of("config/doi-proxy.toml").splitlines()
    given = [line.removeprefix("#") for line in lines if re.match(r"#[a-z_0-9]+ = (?!\"…\")|\[", line)]
    (tmp_path / "all.toml").write_text("\n".join(given), encoding="utf-8")
    assert load({}, {}, tmp_path / "all.toml") == Settings()
    tables = tomllib.loads("\n".join(given))
    assert sum(len(table) for table in tables.values()) == sum(
        field.default not in (None, PydanticUndefined) for field in Settings.model_fields.values()
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_variable_that_a_page_names_is_a_setting(page: Path) -> None:
    # DOI_PROXY_CACHE_TTL is the example of a variable that is refused.
    known = {variable(name) for name in Settings.model_fields} | {f"{ENV_PREFIX}CONFIG", f"{ENV_PREFIX}CACHE_TTL"}
    named = re.findall(rf"\b{ENV_PREFIX}[A-Z0-9_]+[A-Z0-9]\b", page.read_text(encoding="utf-8"))
    # Of a secret, NAME_FILE names a file; the name of a setting may end so as well.
    assert {name for name in named if name not in known and name.removesuffix("_FILE") not in known} == set()


# --- Errors -------------------------------------------------------------------------------------------------------


def error_classes() -> list[type[DoiProxyError] | type[InvalidName]]:
    installed()
    # UnreadableName is InvalidName and what is below it, in answers.
    return [*(one for one in list_errors() if one is not UnreadableName), InvalidName, *InvalidName.__subclasses__()]


def error_row(name: str) -> str:
    rows = [row for row in text_of("docs/errors.md").splitlines() if row.startswith(f"| `{name}` |")]
    assert len(rows) == 1, f"docs/errors.md has {len(rows)} rows about {name}"
    return rows[0]


@pytest.mark.parametrize("error", error_classes(), ids=lambda error: error.__name__)
def test_every_error_is_documented_with_its_status(error: type[DoiProxyError] | type[InvalidName]) -> None:
    row = error_row(error.__name__)
    status = as_failure(error()).status if issubclass(error, InvalidName) else error.status
    of_stores = {"StoreError", "DamagedEntry"}
    never_an_answer = {"DoiProxyError", "ConfigurationError", *of_stores}
    assert error.__name__ in never_an_answer or row.split("|")[2].strip() == str(int(status))


@pytest.mark.parametrize(
    "error", [one for one in error_classes() if issubclass(one, CouldNotVerify)], ids=lambda error: error.__name__
)
def test_every_failure_is_documented_with_what_proxy_status_says(error: type[CouldNotVerify]) -> None:
    row = error_row(error.__name__)
    assert f"| `{error.proxy_error}` | `{error.token}` |" in row


def test_no_error_is_documented_that_is_not_there() -> None:
    named = set(re.findall(r"^\| `([A-Z]\w+)` \|", text_of("docs/errors.md"), re.MULTILINE))
    assert named == {error.__name__ for error in error_classes()}


def test_every_reason_that_cache_status_gives_is_documented() -> None:
    page = text_of("docs/caching.md")
    tokens = {error.token for error in error_classes() if issubclass(error, CouldNotVerify)}
    assert {token for token in tokens if f"| `{token}` |" not in page} == set()


# --- Links and files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    targets = [link.partition("#")[0] for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_of_the_project_that_a_page_names_is_there(page: Path) -> None:
    named = set(SOURCE_FILE.findall(page.read_text(encoding="utf-8")))
    # tests/x/ stands for the tests of app/doi_proxy/x/.
    assert {name for name in named - {"app/doi_proxy/x/", "tests/x/"} if not (ROOT / name).exists()} == set()


def test_every_folder_and_file_of_app_is_in_the_layout_of_the_architecture() -> None:
    layout = text_of("docs/architecture.md").partition("\n## Layout\n")[2].partition("```\n")[2].partition("```")[0]
    folders = {f"{one.parent.name}/" for one in ROOT.glob("app/doi_proxy/*/__init__.py")}
    files = {one.name for one in ROOT.glob("app/doi_proxy/*.py") if not one.name.startswith("__")}
    assert (folders | files) - set(re.findall(r"[\w./]+", layout)) == set()


def _architecture(heading: str) -> str:
    return text_of("docs/architecture.md").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_the_architecture_lists_the_files_of_a_cold_redirect() -> None:
    first = re.findall(r"^\| `(app/[^`]+)`", _architecture("A first reading"), re.MULTILINE)
    others = re.findall(r"^\| `(app/[^`]+)`", _architecture("The other files of a cold redirect"), re.MULTILINE)
    entered = {f"app/{name}" for name in trace_alone()["cold"][0]}
    assert len(first) <= 18
    assert sum(len(text_of(name).splitlines()) for name in first) <= 3_000
    assert set(first) <= entered == {*first, *others}


def test_a_setting_that_a_page_names_by_its_table_exists() -> None:
    keys = {".".join(Settings.table_and_key(name)) for name in Settings.model_fields}
    # branding.toml is a file.
    named = re.compile(rf"`((?:{'|'.join(Settings.tables)})\.(?!toml\b)[a-z_]+)\b")
    pages = {page.name: set(named.findall(page.read_text(encoding="utf-8"))) for page in PAGES}
    assert {page: found - keys for page, found in pages.items() if page != "CHANGELOG.md" and found - keys} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_in_a_block_of_a_page_can_be_parsed(page: Path) -> None:
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for command in DOI_PROXY.findall(block.replace("\\\n> ", "").replace("\\\n", "")):
            # Wrong arguments end the program.
            create_parser(is_complete=True).parse_args(shlex.split(command, comments=True))


def test_the_architecture_prints_the_import_rule() -> None:
    assert IMPORT_RULE in text_of("docs/architecture.md")


def test_every_page_is_in_a_list_of_the_start_page_or_of_the_decisions() -> None:
    start = text_of("docs/index.md").partition("\n## ")[2]
    lines = re.findall(r"^- \[.*", start, re.MULTILINE)
    listed = {(ROOT / "docs" / link).resolve() for line in lines for link in LINK.findall(line)}
    decisions = {ROOT / "docs/decisions" / link for link in LINK.findall(text_of("docs/decisions/index.md"))}
    pages = {page for page in PAGES if page.parent != ROOT} - {ROOT / "docs/index.md"}
    assert pages - listed - decisions == set()
    assert "](docs/index.md)" in text_of("README.md")


# --- A running proxy ----------------------------------------------------------------------------------------------


def plain_environment() -> dict[str, str]:
    """The environment of this process without the settings of doi-proxy and of HTTP proxies."""
    dropped = re.compile(rf"{ENV_PREFIX}.*|.*_proxy", re.IGNORECASE)
    return {name: value for name, value in os.environ.items() if not dropped.fullmatch(name)}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A proxy as `make run` starts it, whose upstream refuses every connection."""
    folder = tmp_path_factory.mktemp("proxy")
    started = Proxy(folder, "http://127.0.0.1:1", "memory:", seed="config/seed.ndjson")
    asyncio.run(started.ready())
    yield started
    started.process.kill()


def openapi(proxy: Proxy) -> dict[str, Any]:
    document: dict[str, Any] = asyncio.run(proxy.ask("/openapi.json")).json
    return document


def test_every_path_is_documented(proxy: Proxy) -> None:
    page = text_of("docs/api.md") + text_of("docs/operations.md")
    routes = set(re.findall(r'@app\.\w+\(\s*"(/[^"]*)"', text_of("app/doi_proxy/web/redirect.py")))
    # /doiRA/ is written with capitals as the handbook has it; any case is answered.
    own = {OPENURL_PATH.decode(), *(path.decode().replace("/doira/", "/doiRA/") for path in WHICH_RA_PATHS)}
    paths = routes | own | {STATIC_PATH.decode() + "{file}", "/favicon.ico"} | set(openapi(proxy)["paths"])
    assert {path for path in paths if f"`{path}" not in page} == set()


def test_every_parameter_in_the_openapi_description_is_documented(proxy: Proxy) -> None:
    page = text_of("docs/api.md") + text_of("docs/resolution.md") + text_of("docs/batch.md")
    names = set(re.findall(r'"name":"([^"]+)","in":', json.dumps(openapi(proxy), separators=(",", ":"))))
    assert len(names) > 20
    assert {name for name in names if f"`{name}`" not in page and f"{{{name}}}" not in page} == set()


def test_every_command_that_a_page_names_is_one() -> None:
    named = {name for page in PAGES for name in SUBCOMMAND.findall(page.read_text(encoding="utf-8"))}
    helped = subprocess.run(
        [sys.executable, "-m", "doi_proxy", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    ).stdout
    assert {"serve", "config", "check"} <= named
    assert {name for name in named if not re.search(rf"^ +{name}\b", helped, re.MULTILINE)} == set()


# --- What README prints -------------------------------------------------------------------------------------------


class Shown(NamedTuple):
    """A command in README and the output printed below it."""

    command: str
    output: str


def shown_commands() -> list[Shown]:
    found = []
    for block in CONSOLE.findall(text_of("README.md")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Shown(command, output.rstrip("\n")))
    return found


def run_shown(shown: Shown, proxy: Proxy) -> str:
    """The real output of a command, with the address that README has."""
    command = shlex.split(shown.command.replace(SHOWN_ADDRESS, proxy.url))
    assert command[0] == "curl"
    done = subprocess.run(
        command, env=plain_environment(), capture_output=True, text=True, timeout=DEADLINE, check=True
    )
    return done.stdout.replace("\r\n", "\n").replace(proxy.url, SHOWN_ADDRESS).rstrip("\n")


def test_the_readme_shows_a_record_and_a_failure() -> None:
    outputs = [shown.output for shown in shown_commands()]
    assert any('"responseCode":1' in output for output in outputs)
    assert any('"responseCode":2' in output for output in outputs)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (Debian package: curl)")
@pytest.mark.parametrize("shown", shown_commands(), ids=lambda shown: shown.command)
def test_a_command_in_the_readme_prints_what_the_readme_shows(shown: Shown, proxy: Proxy) -> None:
    assert run_shown(shown, proxy) == shown.output
