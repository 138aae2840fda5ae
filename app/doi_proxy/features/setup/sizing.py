"""What a load takes: upstream queries, places, processors and room in the store. Formulas over measured costs.

docs/scale.md has the sources, and a table that `write_rows` fills. `doi-proxy check --size` prints one column of it.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from ipaddress import ip_address
from math import ceil, expm1, log
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.feature import CommandContext
from doi_proxy.server.connections import IDLE_TIMEOUT
from doi_proxy.server.listening import UNIX
from doi_proxy.system.files import Replacement, explain_failure, has_package_file, read_package_file, read_regular
from doi_proxy.system.options import CONFIG_VARIABLE, MASK, Settings, redact, redact_value, write_value
from doi_proxy.system.toml_text import TomlProblem, parse_toml


class ShownSetting(TypedDict):
    """The value of a setting, None without one, and where it was set."""

    value: str | None
    source: str


def describe_settings(context: CommandContext) -> Mapping[str, ShownSetting]:
    """Each setting by its name. Raises ConfigurationError."""
    settings, values, shown = context.settings, context.values, dict[str, ShownSetting]()
    for name, value in settings.model_dump(mode="json").items():
        sourced = values.get(name)
        is_secret = value is not None and (settings.is_secret(name) or (sourced is not None and sourced.secret))
        text = None if value is None else MASK if is_secret else write_value(redact_value(value))
        shown[name] = ShownSetting(value=text, source="default" if sourced is None else sourced.source)
    return shown


#: The largest file that is compared.
_MOST_BYTES: Final = 1024 * 1024
_SECRET_LINE: Final = re.compile(r"([-+ ]#?\s*[a-z_]*(?:key|token|password)\s*=\s*).*")


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file with its new text, the text that is there, None if there is none, and what has to follow a change."""

    path: Path
    text: str
    before: str | None
    step: str = ""
    is_private: bool = False

    @property
    def differs(self) -> bool:
        """Whether the file has to be written."""
        return self.text != self.before

    def show_difference(self) -> Iterator[str]:
        """The lines of a unified diff, with secrets masked."""
        lines = (self.before or "").splitlines(), self.text.splitlines()
        for line in difflib.unified_diff(*lines, str(self.path), f"{self.path} (new)", lineterm="", n=1):
            yield redact(_SECRET_LINE.sub(rf"\g<1>{MASK}", line))


def read_existing(path: Path) -> str | None:
    """The text of a file, None if there is none. Raises ConfigurationError."""
    try:
        return read_regular(path, _MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {explain_failure(error)}; move this file away") from error


def write_planned(planned: PlannedFile) -> None:
    """Write a file in one step. What was there is kept beside it with `.before` at the end of its name.

    An existing file keeps its mode, its owner and its group; a new private one belongs to the group of its folder.
    Raises ConfigurationError.
    """
    path = planned.path.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        old = path.stat() if planned.before is not None else None
        folder = path.parent.stat()
        owner = (old.st_uid, old.st_gid) if old else (-1, folder.st_gid)
        # Settings and alerts are for the service and for root; a front proxy starts as root.
        mode = old.st_mode & 0o777 if old else 0o640 if planned.is_private else 0o644
        if old is not None:
            _replace(Path(f"{path}.before"), read_regular(path, _MOST_BYTES), owner, mode)
        _replace(path, planned.text.encode(), owner, mode)
    except OSError as error:
        raise ConfigurationError(f"{planned.path}: {explain_failure(error)}; run this command as root") from error


def _replace(path: Path, content: bytes, owner: tuple[int, int], mode: int) -> None:
    with Replacement(path) as replacement:
        with suppress(PermissionError):
            os.fchown(replacement.file.fileno(), *owner)
        os.fchmod(replacement.file.fileno(), mode)
        replacement.file.write(content)
        replacement.put()


def change_settings(settings: Settings, text: str, values: Mapping[str, Any]) -> str:
    """The text of a TOML file with these settings. Comments and all other settings stay. Raises ConfigurationError."""
    changed = text
    for name, value in values.items():
        # TOML has the strings of JSON, but no DEL in them (TOML 1.0.0, "String").
        line = f"{settings.table_and_key(name)[1]} = {json.dumps(value, ensure_ascii=False)}"
        changed = _set_line(changed, settings.table_and_key(name), line.replace("\x7f", "\\u007f"))
    # A form of TOML that _set_line does not know, such as a value of several lines.
    try:
        tables = parse_toml(text)
        for name, value in values.items():
            table, key = settings.table_and_key(name)
            tables[table] = {**tables.get(table, {}), key: value}
        is_right = parse_toml(changed) == tables
    except TomlProblem:
        is_right = False
    if not is_right:
        names = ", ".join(values)
        raise ConfigurationError(f"the settings file has a form that setup cannot change; set there yourself: {names}")
    return changed


def _set_line(text: str, place: tuple[str, str], new: str) -> str:
    """Replace the line of a key in a table, or its line in a comment, or add it after the heading of the table."""
    table, key = place
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.lstrip().startswith("[")] + [len(lines)]
    start = next((head for head in heads[:-1] if lines[head].partition("#")[0].strip() == f"[{table}]"), None)
    if start is None:
        return f"{text.rstrip()}\n\n[{table}]\n{new}\n"
    inside = range(start + 1, heads[heads.index(start) + 1])
    for pattern in (rf"\s*{key}\s*=", rf"#\s*{key}\s*="):
        for number in inside:
            if re.match(pattern, lines[number]):
                return "\n".join([*lines[:number], new, *lines[number + 1 :]]) + "\n"
    return "\n".join([*lines[: start + 1], new, *lines[start + 1 :]]) + "\n"


def add_networks(text: str, networks: Sequence[str]) -> str:
    """The text of a list of networks with those that it does not have."""
    present = {line.partition("#")[0].strip() for line in text.splitlines()}
    missing = [network for network in dict.fromkeys(networks) if network not in present]
    return text if not missing else "\n".join([text.rstrip(), *missing]) + "\n"


#: Ranks whose weights are added one by one. For the others, an integral replaces the sum: its relative error is below
#: 1e-8.
_EXACT: Final = 1_000


@dataclass(frozen=True)
class Popularity:
    """`names` names. The n-th is requested in proportion to 1/n**exponent."""

    names: int
    exponent: float

    def distinct(self, requests: float) -> float:
        """The number of names that so many requests are expected to name."""
        return sum(count * -expm1(-requests * each) for count, each in self.bins)

    def ttl_share(self, requests: float) -> float:
        """The share of requests that a store of any size answers if a record is fresh for so many requests.

        A record is fetched by one request, and answers those that follow while it is fresh (Jung and others, INFOCOM
        2003).
        """
        return sum(count * each * (rate / (1 + rate)) for count, each in self.bins if (rate := requests * each))

    def weight_of_first(self, rank: int) -> float:
        """The sum of the weights of the first `rank` names."""
        if rank < len(self._head):
            return self._head[rank]
        start, end, power = _EXACT + 0.5, rank + 0.5, 1 - self.exponent
        # The midpoint rule. For an exponent of 1, the integral is a logarithm.
        return self._head[-1] + (log(end / start) if power == 0 else (end**power - start**power) / power)

    @cached_property
    def bins(self) -> list[tuple[int, float]]:
        """Bins of names with about the same popularity: the number of names, and the probability of each."""
        bins, last, total = [], 0, self.weight_of_first(self.names)
        while last < self.names:
            # Ranks that the formulas treat one by one, and the width of the later bins of ranks.
            end = min(self.names, last + 1 if last < 100 else int(last * 1.02))
            weight = self.weight_of_first(end) - self.weight_of_first(last)
            bins.append((end - last, weight / total / (end - last)))
            last = end
        return bins

    @cached_property
    def _head(self) -> list[float]:
        sums = [0.0]
        for rank in range(1, min(self.names, _EXACT) + 1):
            sums.append(sums[-1] + rank**-self.exponent)
        return sums


def read_shipped(path: str) -> str:
    """The text of a file of config/, such as `prometheus/alerts.yml`. Raises OSError without one."""
    return _read("config", path)


def read_manual_page(name: str) -> str:
    """A page of the manual in Markdown, such as `runbook`. Raises OSError without one."""
    return _read("docs", f"{name}.md")


def _read(folder: str, path: str) -> str:
    if has_package_file(__package__, folder, path):
        return read_package_file(__package__, folder, path).decode()
    # The largest file of a checkout that is read.
    return read_regular(Path(__file__).parents[4] / folder / path, 1024 * 1024).decode()


_DAY: Final = 86_400.0
#: Registered names in 2025: docs/scale.md.
REGISTERED: Final = 391_000_000
#: Crossref: 2 to 4 % of all resolutions fail. Each of them needs an upstream query.
NOT_FOUND: Final = 0.03
#: The peak is three times the mean, as if all requests of a day came within eight hours.
PEAK: Final = 3.0
#: A processor is half busy at the peak.
BUSY: Final = 0.5
#: Bytes of an answer with three values in a SQLite store of a million: `make bench ARGS=large`, docs/scale.md. Small
#: stores have more, because the file grows in steps.
RECORD_BYTES: Final = 200.0
#: Seconds of processor time of an answer from the store and of one from the upstream: RESULTS.md, part "Scale". An
#: answer from memory takes less, so what follows is an upper limit.
STORE_SECONDS: Final = 107e-6
UPSTREAM_SECONDS: Final = 540e-6
#: The same of a connection with TLS that is opened for one request: docs/performance.md.
TLS_SECONDS: Final = 600e-6
#: Queries a second above which a guest of the public resolver should not request a higher rate.
_GUEST: Final = 100.0

_SIZE: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([kMG]?)/(s|day)")


class Limit(StrEnum):
    """What a load meets first: a setting, or the processors."""

    NOTHING = "nothing"
    TOKENS = "upstream_rate"
    PLACES = "upstream_max_concurrency"
    PROCESSORS = "processors"


class Load(NamedTuple):
    """Requests a second: the mean of a day, and its peak."""

    mean: float
    peak: float


class Has(NamedTuple):
    """What a service has: tokens a second, places for queries, and processors that answer."""

    rate: float
    places: int
    processors: int


@dataclass(frozen=True, slots=True)
class Need:
    """What a load takes. Rates are a second, `answer` is in seconds, sizes are in bytes."""

    load: Load
    answer: float
    stored_share: float
    queries: float
    peak_queries: float
    places: int
    connections: int
    processors: float
    processors_with_tls: float
    records: float
    store_bytes: float

    def first_limit(self, has: Has) -> Limit:
        """The limit that the peak exceeds the most."""
        used = {
            Limit.TOKENS: self.peak_queries / has.rate,
            Limit.PLACES: self.places / has.places,
            Limit.PROCESSORS: self.processors_with_tls / has.processors,
        }
        most = max(used, key=lambda limit: used[limit])
        return most if used[most] > 1 else Limit.NOTHING

    def advice(self, has: Has) -> list[str]:
        """What to run for this load, one sentence for each limit that is exceeded."""
        found = []
        if self.peak_queries > _GUEST:
            found.append("a registry file at each site: names in it need no query")
        elif self.peak_queries > has.rate:
            found.append(f"upstream_rate = {ceil(self.peak_queries)}, agreed with the DOI Foundation, or longer TTLs")
        if self.places > has.places and self.peak_queries <= _GUEST:
            found.append(f"upstream_max_concurrency = {self.places}")
        # Requests a second of one machine above which HTTP caches in front cost less than more machines.
        if self.load.peak > 4_000.0:
            found.append("HTTP caches in front, and machines that share a Valkey with Sentinel")
        elif self.processors_with_tls > has.processors:
            found.append(f"instances = {ceil(self.processors_with_tls)}, and TLS that ends in the front proxy")
        return found or ["the default settings"]


def read_load(text: str) -> Load:
    """The load of `10M/day` (the mean) or of `44k/s` (the peak). Raises ValueError."""
    found = _SIZE.fullmatch(text.strip())
    count = float(found[1]) * {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}[found[2]] if found else 0.0
    if found is None or not 0 < count <= 1e12:
        raise ValueError(
            f"{text[:40]!r} is not a load; write a number, with k, M or G after it, and /day for the mean or /s for "
            "the peak, such as 10M/day or 44k/s"
        )
    mean = count / _DAY if found[3] == "day" else count / PEAK
    return Load(mean, mean * PEAK)


def need_of(load: Load, answer: float, lifetime: float = _DAY, grace: float = 30 * _DAY) -> Need:
    """What a load takes if the upstream answers in `answer` seconds.

    Records are fresh for `lifetime` seconds, and kept for `grace` seconds more.
    """
    # The exponent of their popularity in a public log: docs/scale.md.
    law = Popularity(REGISTERED, 0.85)
    stored = (1 - NOT_FOUND) * law.ttl_share(load.mean * lifetime)
    seconds = stored * STORE_SECONDS + (1 - stored) * UPSTREAM_SECONDS
    records = law.distinct(load.mean * (lifetime + grace))
    return Need(
        load=load,
        answer=answer,
        stored_share=stored,
        queries=load.mean * (1 - stored),
        peak_queries=load.peak * (1 - stored),
        places=ceil(load.peak * (1 - stored) * answer),
        connections=ceil(load.peak * IDLE_TIMEOUT),
        processors=load.peak * seconds / BUSY,
        processors_with_tls=load.peak * (seconds + TLS_SECONDS) / BUSY,
        records=records,
        store_bytes=records * RECORD_BYTES,
    )


def write_rows(needs: Sequence[Need], has: Has) -> list[tuple[str, ...]]:
    """A row for each quantity: its label, and its value for each load."""
    labels: tuple[tuple[str, Callable[[Need], str]], ...] = (
        ("requests a second, mean; peak", lambda one: f"{_number(one.load.mean)}; {_number(one.load.peak)}"),
        ("answered without a query", lambda one: f"{one.stored_share:.0%}"),
        ("upstream queries a second, mean; peak", lambda one: f"{_number(one.queries)}; {_number(one.peak_queries)}"),
        ("places for queries", lambda one: f"{one.places:,}"),
        (f"connections, each open for {IDLE_TIMEOUT:g} s", lambda one: f"{one.connections:,}"),
        ("processors, half busy at the peak", lambda one: _number(one.processors)),
        ("the same, with a TLS connection a request", lambda one: _number(one.processors_with_tls)),
        ("records after 31 days", lambda one: f"{_number(one.records / 1e6)} M"),
        ("the store after 31 days", lambda one: f"{_number(one.store_bytes / 2**30)} GiB"),
        ("what breaks first", lambda one: str(one.first_limit(has))),
    )
    return [(label, *(write(one) for one in needs)) for label, write in labels]


def _number(value: float) -> str:
    """Two digits of a small number, all digits before the point of a large one."""
    if value < 0.01:
        return "under 0.01"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


#: The settings file of the unit.
CONFIG: Final = Path("/etc/doi-proxy/doi-proxy.toml")
#: The environment file of the unit: the number of instances that share the service.
INSTANCES: Final = Path("/etc/doi-proxy/instances")
#: The units: one process of the service, the socket that all of them share, and all of them together.
SERVICE: Final = "doi-proxy@.service"
SOCKET: Final = "doi-proxy.socket"
TARGET: Final = "doi-proxy.target"
#: The program of the package, of which the shipped unit is.
PROGRAM: Final = Path("/opt/doi-proxy/bin/doi-proxy")
#: A path that needs no quotes or escapes.
_PATH: Final = re.compile(r"/[A-Za-z0-9._~/@+-]*")


def find_program() -> Path:
    """The program that runs, by its path behind links. That of the package if this is not an installed program."""
    for program in (Path(sys.argv[0]).resolve(), Path(sysconfig.get_path("scripts"), PROGRAM.name)):
        if program.name == PROGRAM.name and program.is_file():
            return program
    return PROGRAM


def usual_instances() -> int:
    """As many instances as there are processors, at most four."""
    # Instances of one machine, unless an operator enables more.
    return min(len(os.sched_getaffinity(0)), 4)


def write_units(settings: Settings, config: Path, program: Path) -> dict[str, str]:
    """The systemd units by their names. The settings stay in the file `config`. Raises ConfigurationError."""
    return {
        SERVICE: _write_service(settings, config, program),
        SOCKET: _write_socket(settings),
        TARGET: read_shipped(f"systemd/{TARGET}"),
    }


def _write_service(settings: Settings, config: Path, program: Path) -> str:
    values = {
        f"Environment={CONFIG_VARIABLE}": f"{_check_path('--config', config)}",
        "ExecStart": f"{_check_path('the program', program)} serve",
    }
    # Folders that ProtectHome= hides (systemd.exec(5)).
    if any(program.is_relative_to(home) for home in ("/home", "/root", "/run/user")):
        values["ProtectHome"] = "read-only"
    folder = _find_store_folder(settings.store_url)
    if folder is not None:
        values["ProtectSystem"] = f"strict\nReadWritePaths={_check_path('store_url', folder)}"
    return _set_directives(read_shipped(f"systemd/{SERVICE}"), values)


def _write_socket(settings: Settings) -> str:
    address = settings.host
    if address.startswith(UNIX):
        path = _check_path("host", Path(address.removeprefix(UNIX)))
        # The address in the settings has the owner of the service, as a socket has that the service itself opens.
        address = f"{path}\nSocketUser=doi-proxy\nSocketGroup=doi-proxy\nSocketMode=0660"
    else:
        try:
            host = ip_address(address)
        except ValueError as error:
            raise ConfigurationError(f"host: {address[:80]!r} is a name; a socket unit needs an IP address") from error
        address = f"[{host}]:{settings.port}" if host.version == 6 else f"{host}:{settings.port}"
    return _set_directives(read_shipped(f"systemd/{SOCKET}"), {"ListenStream": address})


def _set_directives(unit: str, values: dict[str, str]) -> str:
    for directive, value in values.items():
        unit = re.sub(rf"^{directive}=.*$", f"{directive}={value}", unit, flags=re.MULTILINE)
    return unit


def _find_store_folder(store_url: str) -> Path | None:
    """The folder of a SQLite store that is not in the unit's state folder. A relative path is not of this unit."""
    scheme, _, path = store_url.partition(":///")
    folder = Path(path).parent
    if scheme != "sqlite" or not folder.is_absolute() or folder.is_relative_to(Path("/var/lib/doi-proxy")):
        return None
    return folder


def _check_path(name: str, path: Path) -> str:
    """The absolute path. Raises ConfigurationError if it would need quotes."""
    absolute = str(path.absolute())
    if not _PATH.fullmatch(absolute):
        raise ConfigurationError(f"{name}: {absolute[:200]!r} has a character with a meaning in units; choose another")
    return absolute
