"""The rules of the architecture: imports, homes of libraries and names, purity, and no effects at import.

The rules are data. The rest of this file parses app/ with `ast` and compares. It imports nothing of app/.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

pytestmark = pytest.mark.repository

# --- The rules ---------------------------------------------------------------------------------------------------

#: A part imports the parts to its right. Parts between commas do not know each other. docs/architecture.md has these
#: lines too, and a test compares them.
IMPORT_RULE: Final = """
doi_proxy -> handle_protocol -> doi_names
service: commands -> main -> assembly -> features -> list_formats -> endpoints -> shared
shared: networks -> store -> proxy_client -> core
core: server -> web -> resolver -> cache, upstream -> rationing, system -> errors
a feature imports the core, and another feature only where its feature.py names it
the core imports no feature, no settings, no assembly; cache and upstream do not know each other; web knows neither
"""
#: The core, from the top down. A folder does not import those beside it on its line, nor those above.
CORE: Final = (
    ("server",),
    ("web",),
    ("resolver",),
    ("cache", "upstream"),
    ("rationing", "system"),
    ("errors",),
)
#: The packages below the service, and what each imports.
BELOW: Final = {
    "doi_names": frozenset({"doi_names"}),
    "handle_protocol": frozenset({"handle_protocol", "doi_names"}),
}
#: What lies above the core, from the top down.
ABOVE: Final = (
    "commands",
    "main",
    "assembly",
    "features",
    "list_formats",
    "endpoints",
    "networks",
    "store",
    "proxy_client",
)
#: Imports that the line on `web` forbids, though a lower floor holds them.
FORBIDDEN: Final = {"web": frozenset({"cache", "upstream"})}

#: The parts a library may be imported in, or the module.
LIBRARY_HOMES: Final[dict[str, frozenset[str]]] = {
    # The second reads the URL of an egress proxy as the first does.
    "httpx": frozenset({"upstream", "features.native"}),
    "mcp": frozenset({"features.assistants"}),
    # It takes 40 GB for some texts of 100 kB.
    "tomllib": frozenset({"system.toml_text"}),
    # The second connects only to addresses that it has compared. The third is the HTTP tunnel.
    "aiohttp": frozenset({"upstream", "features.metadata", "handle_protocol"}),
    "yarl": frozenset({"upstream", "handle_protocol"}),
    "cryptography": frozenset({"handle_protocol"}),
    "sqlite3": frozenset({"store", "features.sqlite", "features.registry", "features.bundles"}),
    "redis": frozenset({"features.valkey"}),
    "jinja2": frozenset({"web"}),
    # Every feature that answers requests.
    "fastapi": frozenset({"features", "endpoints", "assembly"}),
    "starlette": frozenset({"features", "list_formats", "endpoints"}),
    "prometheus_client": frozenset({"features.metrics"}),
    "opentelemetry": frozenset({"features.tracing"}),
    "uvicorn": frozenset({"server"}),
    "httptools": frozenset({"server"}),
}

#: No I/O, no async, no clock, no randomness, no logging in these: time and chance are arguments.
PURE: Final = ("doi_names", "handle_protocol", *(
    f"doi_proxy.{name}"
    for name in (
        "features.library.copy",
        "features.library.rules",
        "features.lists.verdict",
        "features.local_records.file_text",
        "features.local_records.records",
        "features.metadata.cited",
        "features.metadata.match",
        "features.metadata.words",
        "features.registry.json_values",
        "list_formats.bibliographies",
        "list_formats.entries",
        "list_formats.formats",
        "list_formats.json_lists",
        "list_formats.lines",
        "list_formats.reference_list",
        "list_formats.tables",
        "rationing",
        "resolver.resolution",
        "resolver.target",
        "system.toml_text",
    )
))  # fmt: skip
#: What awaits servers: the transports and what is above them. An archive is read from memory, as a file.
NOT_PURE: Final = tuple(
    f"handle_protocol.{name}" for name in ("client", "directory", "exchange", "referral", "site", "transport")
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

#: Where files are opened: nothing there waits for a pipe, or writes through a link. A tool for an archive or a package,
#: such as `tarfile.open`, has an object in its place.
FILE_HOMES: Final = frozenset(
    # The build loads the last one alone.
    {"doi_proxy.system.files", "doi_proxy.system.version"}
)
#: What opens, creates, copies or replaces a file by its path. `Path.open` is recognized by its mode, or by what it is
#: called on.
OPENING_CALLS: Final = frozenset(
    "open io.open os.open os.mkfifo os.link os.symlink os.rename os.replace shutil.copy shutil.copy2 shutil.copyfile "
    "shutil.copytree shutil.move tempfile.mkstemp tempfile.NamedTemporaryFile tempfile.TemporaryFile".split()
)
OPENING_METHODS: Final = frozenset({"read_bytes", "read_text", "write_bytes", "write_text", "touch", "hardlink_to"})
OPENING_MODES: Final = frozenset({"r", "w", "x", "a", "rb", "wb", "xb", "ab", "r+b", "w+b"})

#: Names that say nothing about what is inside.
EMPTY_NAMES: Final = frozenset(
    "util utils helper helpers common misc service services manager managers schema schemas".split()
)

#: Arguments of a function without `self`, and how many functions may have many.
MOST_ARGUMENTS: Final = 8
MANY_ARGUMENTS: Final = 7
MOST_FUNCTIONS_WITH_MANY_ARGUMENTS: Final = 8
#: Entries at the top of app/.
MOST_ENTRIES: Final = 21

# --- The reading -------------------------------------------------------------------------------------------------

ROOT: Final = Path(__file__).resolve().parents[1]
SERVICE: Final = ROOT / "app" / "doi_proxy"
#: The packages of app/, from the bottom up.
PACKAGES: Final = (*BELOW, "doi_proxy")


class Module(NamedTuple):
    """A module of app/ by its dotted name, parsed."""

    name: str
    tree: ast.Module

    @property
    def part(self) -> str:
        """The part of the program that the module belongs to; "" is doi_proxy itself."""
        return part_of(self.name)

    @property
    def is_pure(self) -> bool:
        """Whether the rule of purity holds for it."""
        return _is_below(self.name, PURE) and not _is_below(self.name, NOT_PURE)


class Import(NamedTuple):
    """What is imported, by its dotted name; the name that this binds, to which dotted name; and where."""

    target: str
    line: int
    name: str
    stands_for: str


def _is_below(name: str, places: tuple[str, ...]) -> bool:
    return name.startswith(places) and any(name == place or name.startswith(f"{place}.") for place in places)


def module(name: str, text: str) -> Module:
    """A module from its text."""
    return Module(name, ast.parse(text))


@cache
def modules() -> tuple[Module, ...]:
    """All modules of app/. They are parsed once for all rules."""
    found = []
    for path in sorted((ROOT / "app").rglob("*.py")):
        parts = path.relative_to(ROOT / "app").with_suffix("").parts
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
    """The part of the service that a dotted name lies in, as "web" or "features.lists", or a package below it."""
    names = target.split(".")
    if names[0] in BELOW:
        return names[0]
    first = names[1] if len(names) > 1 else ""
    if first == "__main__":
        return "commands"
    if first == "features":
        path = SERVICE.joinpath("features", *names[2:3])
        return f"features.{names[2]}" if len(names) > 2 and path.is_dir() else "features"
    return "" if first.startswith("__") else first


def floor(part: str) -> int:
    """How far from the top a part lies."""
    first = part.partition(".")[0]
    if first in ABOVE:
        return ABOVE.index(first)
    return len(ABOVE) + next(number for number, floor in enumerate(CORE) if first in floor)


@cache
def needs(feature: str) -> frozenset[str] | None:
    """The features that the file feature.py of a feature names. None without such a file."""
    file = SERVICE.joinpath(*feature.split("."), "feature.py")
    if not file.exists():
        return None
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["needs"]:
            return frozenset(f"features.{name}" for name in ast.literal_eval(node.value))
    return frozenset()


def may_import(of: str, target: str) -> bool:
    """Whether one part may import another one."""
    if of in BELOW or target in BELOW:
        return target in BELOW.get(of, BELOW)
    if target in ("", of) or target in FORBIDDEN.get(of, frozenset()):
        return target not in FORBIDDEN.get(of, frozenset())
    if of.startswith("features."):
        needed = needs(of)
        is_other = target.startswith("features.")
        return floor(target) > floor(of) or target == "features" or (is_other and (needed is None or target in needed))
    return floor(target) > floor(of)


def breaks_import_rule(of: Module) -> Iterator[str]:
    """Imports that point the wrong way."""
    for one in imports(of.tree):
        if one.target == ".":
            yield f"{of.name}:{one.line} imports relatively"
        elif one.target.partition(".")[0] in PACKAGES and not may_import(of.part, part_of(one.target)):
            yield f"{of.name}:{one.line} ({of.part}) imports {one.target}"


def breaks_library_homes(of: Module) -> Iterator[str]:
    """Libraries imported outside their home."""
    for one in imports(of.tree):
        library = one.target.partition(".")[0]
        homes = LIBRARY_HOMES.get(library, frozenset({of.part}))
        if homes.isdisjoint({of.name.removeprefix("doi_proxy."), of.part, of.part.partition(".")[0]}):
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


def breaks_file_homes(of: Module) -> Iterator[str]:
    """Files opened by the service elsewhere than where files are opened."""
    if of.name in FILE_HOMES or not _is_below(of.name, ("doi_proxy",)):
        return
    bound = {one.name: one.stands_for for one in imports(of.tree)}
    for node in ast.walk(of.tree):
        if isinstance(node, ast.Call) and _opens_a_file(node, dotted(node.func, bound)):
            yield f"{of.name}:{node.lineno} calls {ast.unparse(node.func)}"


def _opens_a_file(call: ast.Call, name: str) -> bool:
    if not isinstance(call.func, ast.Attribute) or name in OPENING_CALLS - {"open"}:
        return name in OPENING_CALLS
    if name == "tarfile.open" or call.func.attr in OPENING_METHODS:
        return name != "tarfile.open"
    called_on = ast.unparse(call.func.value)
    is_path = called_on.startswith("Path(") or called_on.endswith(("path", "file"))
    has_mode = any(isinstance(value, ast.Constant) and str(value.value) in OPENING_MODES for value in call.args)
    return call.func.attr == "open" and (is_path or has_mode)


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


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> Iterator[tuple[str, Function]]:
    """Each function and method of app/, with its place."""
    for one in modules():
        for node in ast.walk(one.tree):
            if isinstance(node, Function):
                yield f"{one.name}:{node.lineno} {node.name}", node


def count_arguments(function: Function) -> int:
    """The number of arguments of a function, without `self` and `cls`."""
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return (
        len(names) - (names[:1] in (["self"], ["cls"])) + sum(more is not None for more in (given.vararg, given.kwarg))
    )


def breaks_printer(of: Module) -> Iterator[str]:
    """JSON that is printed by other means than `print_json`: a record can have what a terminal obeys."""
    calls = [node for node in ast.walk(of.tree) if isinstance(node, ast.Call)]
    for call in calls if of.name != "doi_proxy.system.files" else ():
        if ast.unparse(call.func) == "print" and "json.dumps(" in ast.unparse(call):
            yield f"{of.name}:{call.lineno} prints JSON; call print_json"


def find_homes(of: Iterable[Module]) -> dict[str, list[str]]:
    """The modules that define each public class and function."""
    homes: dict[str, list[str]] = {}
    for one in of:
        for node in one.tree.body:
            if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(one.name)
    return homes


# --- The tests ---------------------------------------------------------------------------------------------------

Rule = Callable[[Module], Iterator[str]]

RULES: Final[dict[str, Rule]] = {
    "imports point down": breaks_import_rule,
    "a library has one home": breaks_library_homes,
    "deciding is pure": breaks_purity,
    "nothing happens at import": breaks_import_silence,
    "files are opened in one place": breaks_file_homes,
    "JSON is printed in one place": breaks_printer,
}


@pytest.mark.parametrize("rule", RULES)
def test_every_module_keeps_the_rule(rule: str) -> None:
    assert [problem for one in modules() for problem in RULES[rule](one)] == []


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for annotations alone come later, when the modules are there."""
    names = {one.name for one in modules()}
    left = {one.name: set(imported_first(one, names)) - {one.name} for one in modules()}
    while lowest := {name for name, imported in left.items() if not imported}:
        left = {name: imported - lowest for name, imported in left.items() if name not in lowest}
    assert left == {}


def imported_first(of: Module, names: set[str]) -> Iterator[str]:
    """The modules of app/ that are imported while a module is."""
    for node in run_at_import(of.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                yield from {inside if inside in names else node.module} & names


def test_every_module_that_must_be_pure_exists() -> None:
    names = {one.name for one in modules()}
    assert [name for name in (*PURE, *NOT_PURE) if name not in names] == []


def test_every_part_of_the_house_has_a_floor() -> None:
    for one in modules():
        assert not one.part or one.part in BELOW or floor(one.part) >= 0


def test_every_module_is_named_for_what_is_inside() -> None:
    assert [one.name for one in modules() if EMPTY_NAMES & set(one.name.split("."))] == []


def test_a_public_class_or_function_has_one_home() -> None:
    """A name that two modules give to two things gets the word of its feature or of the field."""
    assert {name: homes for name, homes in find_homes(modules()).items() if len(homes) > 1} == {}


def test_two_homes_of_a_name_are_seen() -> None:
    pair = [module("app.a", "class Name: ...\ndef _f(): ..."), module("app.b", "async def Name(): ...\ndef _f(): ...")]
    assert find_homes(pair) == {"Name": ["app.a", "app.b"]}


def test_the_top_of_the_program_has_few_entries() -> None:
    entries = sorted(path.name for path in SERVICE.iterdir() if path.name != "__pycache__")
    assert len(entries) <= MOST_ENTRIES, entries


def test_few_functions_have_many_arguments() -> None:
    counts = {place: count_arguments(node) for place, node in functions()}
    many = {place: count for place, count in counts.items() if count >= MANY_ARGUMENTS}
    assert len(many) <= MOST_FUNCTIONS_WITH_MANY_ARGUMENTS, many
    assert max(counts.values()) <= MOST_ARGUMENTS, many


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("doi_names.name", "from handle_protocol.value import Record"),
        ("doi_proxy.cache.memory", "import doi_proxy.upstream.source"),
        ("doi_proxy.upstream.client", "def f():\n    from doi_proxy.cache import entry"),
        ("doi_proxy.web.api", "from doi_proxy.cache.entry import Entry"),
        ("doi_proxy.web.api", "from doi_proxy import upstream"),
        ("doi_proxy.web.api", "from doi_proxy.assembly.settings import Settings"),
        ("handle_protocol.value", "from . import value"),
        ("doi_proxy.assembly.settings", "from doi_proxy.main import build"),
        ("doi_proxy.main", "from doi_proxy.commands.main import main"),
    ],
)
def test_an_import_that_points_up_or_sideways_is_seen(name: str, text: str) -> None:
    assert len(list(breaks_import_rule(module(name, text)))) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("doi_proxy.resolver.resolver", "import httpx"),
        ("doi_proxy.web.api", "import redis.asyncio"),
        ("doi_proxy.features.lists.answer", "import redis.asyncio"),
        ("doi_proxy.resolver.resolver", "from fastapi import Request"),
        ("doi_proxy.commands.main", "import sqlite3"),
        ("doi_proxy.web.application", "from opentelemetry import trace"),
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
    assert list(breaks_purity(module("doi_proxy.resolver.target", text)))
    assert not list(breaks_purity(module("doi_proxy.resolver.resolver", text)))


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
    assert list(breaks_import_silence(module("doi_proxy.web.api", text)))


@pytest.mark.parametrize(
    "text",
    [
        "def f(path): return open(path)",
        "import os\ndef f(path): return os.open(path, os.O_RDONLY)",
        "def f(place): return place.open('wb')",
        "def f(self): return self._path.open()",
        "from pathlib import Path\ndef f(name): return Path(name).read_text()",
        "from shutil import copy2\ndef f(old, new): copy2(old, new)",
        "import tempfile\ndef f(): return tempfile.mkstemp()",
    ],
)
def test_a_file_opened_elsewhere_is_seen(text: str) -> None:
    assert [*breaks_file_homes(module("doi_proxy.web.look", text))]
    assert not [*breaks_file_homes(module("doi_proxy.system.files", text))]


def test_json_that_is_printed_elsewhere_is_seen() -> None:
    text = "import json\ndef f(record): print(json.dumps(record, ensure_ascii=False))"
    assert [*breaks_printer(module("doi_proxy.features.admin.command", text))]


def test_what_is_called_open_and_opens_no_file_is_left_alone() -> None:
    text = "stores.open(read_only=True)\ntarfile.open(fileobj=file, mode='w:gz')\nself.breaker.open(now)\ngroup.open()"
    assert not [*breaks_file_homes(module("doi_proxy.web.look", text))]


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
    assert not list(breaks_import_silence(module("doi_proxy.web.api", text)))


def test_every_application_answers_as_the_server_asks() -> None:
    # The parser of requests would hide a call with other arguments: it looks like a malformed request.
    arguments = [
        [argument.arg for argument in node.args.args]
        for path in (ROOT / "app").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name == "begin" and "default_headers" in ast.unparse(node.args)
    ]
    assert len(arguments) > 1
    assert all(names == ["self", "scope", "default_headers", "fields"] for names in arguments), arguments
