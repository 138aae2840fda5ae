"""The rules of the architecture: imports, the home of each library, purity, and no effects at import.

    cli -> setup -> main -> server, assistants, bulk, web -> tracing, metrics -> resolver -> cache, upstream -> handle
        -> doi -> errors, token_bucket

The rules are data. The rest of this file parses app/ with `ast` and compares. It imports nothing of app/.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

# --- The rules ---------------------------------------------------------------------------------------------------

#: What each part may import of the others. `main` stands for the modules of PARTS_OF_MAIN: they put parts together.
IMPORT_RULE: Final[dict[str, frozenset[str]]] = {
    "errors": frozenset(),
    "token_bucket": frozenset(),
    "doi": frozenset({"errors"}),
    "lists": frozenset({"doi", "errors"}),
    "handle": frozenset({"doi", "errors"}),
    "registry": frozenset({"doi", "errors"}),
    "cache": frozenset({"handle", "registry", "doi", "errors", "token_bucket"}),
    "upstream": frozenset({"handle", "doi", "errors", "token_bucket"}),
    "resolver": frozenset({"cache", "upstream", "handle", "doi", "errors", "token_bucket"}),
    "metrics": frozenset({"resolver", "handle", "doi", "errors"}),
    "tracing": frozenset({"errors"}),
    "web": frozenset({"tracing", "metrics", "resolver", "handle", "lists", "doi", "errors", "token_bucket", "host"}),
    "bulk": frozenset({"resolver", "cache", "upstream", "handle", "lists", "registry", "doi", "errors"}),
    "assistants": frozenset({"resolver", "upstream", "doi", "errors"}),
    "server": frozenset({"host", "errors"}),
    "host": frozenset(),
    "redaction": frozenset(),
    "settings": frozenset({"errors", "redaction"}),
    "main": frozenset(
        "redaction settings server bulk web tracing metrics resolver cache upstream handle lists doi errors "
        "token_bucket".split()
    ),
    # Set-up: checks of the settings, files for front proxies, and probes through them. It opens parts as `cli` does.
    "setup": frozenset("main redaction settings server web resolver cache upstream handle doi errors".split()),
    "cli": frozenset(
        "main setup redaction settings server assistants bulk web metrics resolver cache upstream handle lists "
        "registry doi errors".split()
    ),
}
PARTS_OF_MAIN: Final = frozenset(
    "main assembly batch_parts client_parts directory_parts gauges library_file lifecycle lifespan local_files "
    "native_parts operation_parts operator_actions program_log readiness root_file service_records shared_budget "
    "status upstream_parts web_face".split()
)

#: The parts a library may be imported in.
LIBRARY_HOMES: Final[dict[str, frozenset[str]]] = {
    # The second asks a running proxy, which is not an upstream.
    "httpx": frozenset({"upstream", "assistants"}),
    "mcp": frozenset({"assistants"}),
    "aiohttp": frozenset({"upstream"}),
    "yarl": frozenset({"upstream"}),
    "cryptography": frozenset({"upstream"}),
    "sqlite3": frozenset({"cache"}),
    "redis": frozenset({"cache"}),
    "cachetools": frozenset({"cache"}),
    "fastapi": frozenset({"web"}),
    "starlette": frozenset({"web"}),
    "jinja2": frozenset({"web"}),
    "prometheus_client": frozenset({"metrics"}),
    "opentelemetry": frozenset({"tracing"}),
    "uvicorn": frozenset({"server"}),
    # The second parses the answers of the HTTP tunnel.
    "httptools": frozenset({"server", "upstream"}),
}

#: No I/O, no async, no clock, no randomness, no logging in these: time and chance are arguments.
PURE_PACKAGES: Final = ("doi", "handle", "lists", "registry", "token_bucket")
DECIDING_MODULES: Final = (
    "alias", "demand", "failure_memory", "findings", "library_copy", "library_rules", "library_services",
    "local_record_file", "local_records", "location_choice", "metadata_format", "options", "outage", "proof",
    "registration_agency", "resolution", "target", "target_url", "toml_text", "ttl_policy", "verdict",
)  # fmt: skip
#: Of app.upstream.native: everything but the transports and what awaits them.
DECIDING_NATIVE_MODULES: Final = (
    "bootstrap",
    "directory_limits",
    "health",
    "json_sites",
    "json_values",
    "referral",
    "root_chain",
    "service_cache",
    "site",
    "trail",
    "verify",
    "wire",
)
IMPURE_LIBRARIES: Final = frozenset(
    "anyio asyncio concurrent http httpx io logging multiprocessing os pathlib queue random secrets select "
    "selectors shutil signal socket sqlite3 ssl structlog subprocess sys tempfile threading time uuid".split()
)
IMPURE_MODULES: Final = frozenset({"importlib.metadata", "importlib.resources", "urllib.request"})
IMPURE_CALLS: Final = frozenset({"open", "print", "input", "now", "utcnow", "today"})

#: What no module may do while it is imported: read the environment, a file or a clock, or make what lives on.
NEVER_AT_IMPORT: Final = frozenset(
    "os.getenv open print input fastapi.FastAPI starlette.applications.Starlette jinja2.Environment "
    "prometheus_client.CollectorRegistry prometheus_client.Counter prometheus_client.Gauge "
    "prometheus_client.Histogram prometheus_client.Summary httpx.AsyncClient httpx.Client sqlite3.connect "
    "redis.Redis redis.asyncio.Redis redis.from_url socket.socket asyncio.Lock asyncio.Semaphore asyncio.Queue "
    "asyncio.run subprocess.run subprocess.Popen time.time time.monotonic random.random random.choice "
    "secrets.token_hex datetime.datetime.now logging.basicConfig structlog.configure importlib.metadata.version "
    "importlib.resources.files threading.Thread concurrent.futures.ThreadPoolExecutor".split()
)
#: What no module may read while it is imported; naming it, as the default of an argument, is no reading.
NEVER_READ_AT_IMPORT: Final = "os.environ"
#: The same as methods, whatever they are called on: `Path(__file__).read_text()`.
NEVER_AT_IMPORT_METHODS: Final = frozenset({"mkdir", "open", "read_bytes", "read_text", "write_bytes", "write_text"})

#: Names that say nothing about what is inside.
EMPTY_NAMES: Final = frozenset(
    "util utils helper helpers common misc service services manager managers schema schemas".split()
)

# --- The reading -------------------------------------------------------------------------------------------------

ROOT: Final = Path(__file__).resolve().parents[1]


class Module(NamedTuple):
    """A module of app/ by its dotted name, parsed."""

    name: str
    tree: ast.Module

    @property
    def part(self) -> str:
        """The part of the program that the module belongs to; "" is app itself."""
        first = self.name.partition(".")[2].partition(".")[0]
        return "main" if first in PARTS_OF_MAIN else "cli" if first == "__main__" else first

    @property
    def is_pure(self) -> bool:
        """Whether the rule of purity holds for it."""
        native, _, rest = self.name.partition(".native.")
        if native == "app.upstream" and rest.partition(".")[0] in DECIDING_NATIVE_MODULES:
            return True
        return self.part in PURE_PACKAGES or self.name in {f"app.resolver.{name}" for name in DECIDING_MODULES}


class Import(NamedTuple):
    """What is imported, by its dotted name; the name that this binds, to which dotted name; and where."""

    target: str
    line: int
    name: str
    stands_for: str


def module(name: str, text: str) -> Module:
    """A module from its text."""
    return Module(name, ast.parse(text))


@cache
def modules() -> tuple[Module, ...]:
    """All modules of app/. They are parsed once for all rules."""
    found = []
    for path in sorted((ROOT / "app").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(module(name, path.read_text(encoding="utf-8")))
    return tuple(found)


@cache
def imports(tree: ast.AST) -> tuple[Import, ...]:
    """Every import, also those inside functions and under TYPE_CHECKING; a relative one as "."."""
    return tuple(_imports(tree))


def _imports(tree: ast.AST) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                package = alias.name.partition(".")[0]
                bound = (alias.asname, alias.name) if alias.asname else (package, package)
                yield Import(alias.name, node.lineno, *bound)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                source = "." if node.level else f"{node.module}.{alias.name}"
                yield Import(source, node.lineno, alias.asname or alias.name, source)


def part_of(target: str) -> str:
    """The part of app/ that a dotted name lies in; "" for app itself (its version)."""
    names = target.split(".")
    first = names[1] if len(names) > 1 else ""
    return "main" if first in PARTS_OF_MAIN else "" if first.startswith("__") else first


def breaks_import_rule(of: Module) -> Iterator[str]:
    """Imports that point the wrong way."""
    for one in imports(of.tree):
        if one.target == ".":
            yield f"{of.name}:{one.line} imports relatively"
        elif one.target.partition(".")[0] == "app":
            part = part_of(one.target)
            if part not in ("", of.part) and part not in IMPORT_RULE.get(of.part, frozenset()):
                yield f"{of.name}:{one.line} ({of.part}) imports {one.target}"


def breaks_library_homes(of: Module) -> Iterator[str]:
    """Libraries imported outside their home."""
    for one in imports(of.tree):
        library = one.target.partition(".")[0]
        if of.part not in LIBRARY_HOMES.get(library, frozenset({of.part})):
            yield f"{of.name}:{one.line} ({of.part}) imports {library}"


def breaks_purity(of: Module) -> Iterator[str]:
    """I/O, async, clocks, randomness and logging in pure modules."""
    if not of.is_pure:
        return
    for one in imports(of.tree):
        if one.target.partition(".")[0] in IMPURE_LIBRARIES or one.target.startswith(tuple(IMPURE_MODULES)):
            yield f"{of.name}:{one.line} imports {one.target}"
    for node in ast.walk(of.tree):
        if isinstance(node, (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)):
            yield f"{of.name}:{node.lineno} is async"
        elif isinstance(node, ast.Call) and dotted(node.func, {}).rpartition(".")[2] in IMPURE_CALLS:
            yield f"{of.name}:{node.lineno} calls {dotted(node.func, {})}"


def breaks_import_silence(of: Module) -> Iterator[str]:
    """What is done while the module is imported, though it should not be."""
    bound = {one.name: one.stands_for for one in imports(of.tree)}
    for node in run_at_import(of.tree):
        match node:
            case ast.Call(func=function) if _is_a_deed(dotted(function, bound), function):
                yield f"{of.name}:{node.lineno} calls {ast.unparse(function)}"
            case ast.Subscript(value=read) | ast.Compare(comparators=[read]):
                if dotted(read, bound) == NEVER_READ_AT_IMPORT:
                    yield f"{of.name}:{node.lineno} reads {NEVER_READ_AT_IMPORT}"


def _is_a_deed(name: str, function: ast.expr) -> bool:
    method = function.attr if isinstance(function, ast.Attribute) else ""
    return name in NEVER_AT_IMPORT or name.startswith(f"{NEVER_READ_AT_IMPORT}.") or method in NEVER_AT_IMPORT_METHODS


def dotted(node: ast.expr, bound: dict[str, str]) -> str:
    """`a.b.c` as its full dotted name, given what the module's imports bind; of `f().b` only `b`."""
    match node:
        case ast.Name():
            return bound.get(node.id, node.id)
        case ast.Attribute():
            before = dotted(node.value, bound)
            return f"{before}.{node.attr}" if before else node.attr
        case _:
            return ""


def run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that are evaluated when the module is imported: no function bodies, no annotations, no main guard."""
    for child in _evaluated_children(node):
        yield child
        yield from run_at_import(child)


def _evaluated_children(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from node.decorator_list
            yield from _defaults(node.args)
        case ast.Lambda():
            yield from _defaults(node.args)
        case ast.AnnAssign():
            yield from [node.value] if node.value else []
        case ast.If() if _is_guard(node.test):
            yield from node.orelse
        case _:
            yield from ast.iter_child_nodes(node)


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *(default for default in arguments.kw_defaults if default is not None)]


def _is_guard(test: ast.expr) -> bool:
    return ast.unparse(test) in ("__name__ == '__main__'", "TYPE_CHECKING", "typing.TYPE_CHECKING")


# --- The tests ---------------------------------------------------------------------------------------------------

Rule = Callable[[Module], Iterator[str]]

RULES: Final[dict[str, Rule]] = {
    "imports point down": breaks_import_rule,
    "a library has one home": breaks_library_homes,
    "deciding is pure": breaks_purity,
    "nothing happens at import": breaks_import_silence,
}


@pytest.mark.parametrize("rule", RULES)
def test_every_module_keeps_the_rule(rule: str) -> None:
    assert [problem for one in modules() for problem in RULES[rule](one)] == []


def test_every_module_that_must_be_pure_exists() -> None:
    pure = {*PURE_PACKAGES, *(f"resolver.{name}" for name in DECIDING_MODULES)}
    pure |= {f"upstream.native.{name}" for name in DECIDING_NATIVE_MODULES}
    assert pure <= {part for module in modules() for part in (module.part, module.name.removeprefix("app."))}


def test_every_part_of_the_house_has_a_line_in_the_import_rule() -> None:
    assert {one.part for one in modules()} - {""} <= IMPORT_RULE.keys()


def test_the_import_rule_has_no_cycle() -> None:
    order: list[str] = []
    while len(order) < len(IMPORT_RULE):
        ready = [part for part, below in IMPORT_RULE.items() if part not in order and below <= set(order)]
        assert ready, f"a cycle among {IMPORT_RULE.keys() - set(order)}"
        order += ready


def test_every_module_is_named_for_what_is_inside() -> None:
    assert [one.name for one in modules() if EMPTY_NAMES & set(one.name.split("."))] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("app.doi.name", "from app.handle.record import Record"),
        ("app.cache.memory", "import app.upstream.source"),
        ("app.upstream.client", "def f():\n    from app.cache import entry"),
        ("app.web.api", "from app.cache.entry import Entry"),
        ("app.web.api", "from app import upstream"),
        ("app.web.api", "from app.settings import Settings"),
        ("app.handle.record", "from . import value"),
        ("app.settings", "from app.main import build"),
        ("app.main", "from app.cli.main import main"),
        ("app.server.protocol", "from app.web.application import Application"),
        ("app.bulk.warm", "from app.settings import Settings"),
        ("app.bulk.warm", "import app.cli.cache"),
    ],
)
def test_an_import_that_points_up_or_sideways_is_seen(name: str, text: str) -> None:
    assert len(list(breaks_import_rule(module(name, text)))) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("app.resolver.resolver", "import httpx"),
        ("app.web.api", "import redis.asyncio"),
        ("app.resolver.resolver", "from fastapi import Request"),
        ("app.cli.main", "import sqlite3"),
        ("app.web.application", "from opentelemetry import trace"),
    ],
)
def test_a_library_away_from_home_is_seen(name: str, text: str) -> None:
    assert len(list(breaks_library_homes(module(name, text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from urllib.request import urlopen",
        "async def f(): pass",
        "def f(): return datetime.now()",
        "def f(): return datetime.date.today()",
        "def f(): return open('x')",
    ],
)
def test_an_impure_line_in_a_pure_module_is_seen(text: str) -> None:
    assert list(breaks_purity(module("app.resolver.target", text)))
    assert not list(breaks_purity(module("app.resolver.resolver", text)))


@pytest.mark.parametrize(
    "text",
    [
        "import os\nHOME = os.environ['HOME']",
        "from os import environ\ndef f(home=environ.get('HOME')): pass",
        "import os\nDEBUG = 'DEBUG' in os.environ",
        "import os as system\nclass A:\n    b = system.getenv('B')",
        "from fastapi import FastAPI\napp = FastAPI()",
        "import httpx\nclient = httpx.AsyncClient()",
        "from pathlib import Path\nTEXT: str = Path(__file__).read_text()",
        "import redis.asyncio\nr = redis.asyncio.Redis()",
        "import redis.asyncio as valkey\nr = valkey.Redis()",
        "from datetime import datetime\nBEGAN = datetime.now()",
        "try:\n    print('x')\nfinally:\n    pass",
    ],
)
def test_a_deed_at_import_is_seen(text: str) -> None:
    assert list(breaks_import_silence(module("app.web.api", text)))


@pytest.mark.parametrize(
    "text",
    [
        "import os\ndef f(): return os.environ['HOME']",
        "import os\nf = lambda: os.getenv('HOME')",
        "import os, time\ndef f(environment=os.environ, clock=time.time): pass",
        "from fastapi import FastAPI\napplication: FastAPI | None = None",
        "if __name__ == '__main__':\n    print('x')",
        "import re\nPATTERN = re.compile('x')",
    ],
)
def test_a_deed_in_a_function_or_a_main_guard_is_no_deed_at_import(text: str) -> None:
    assert not list(breaks_import_silence(module("app.web.api", text)))
