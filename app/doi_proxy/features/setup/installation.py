"""The files of an installation: settings, lists, units of systemd, and what is shipped with the program."""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.server.listening import UNIX
from doi_proxy.system.files import Replacement, explain_failure, has_package_file, read_package_file, read_regular
from doi_proxy.system.options import CONFIG_VARIABLE, MASK, Settings, redact
from doi_proxy.system.toml_text import TomlProblem, parse_toml

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


def write_alerts(public_url: str | None) -> str:
    """The alerts of config/, whose links lead to the runbook of the service at this URL."""
    text = read_shipped("prometheus/alerts.yml")
    # Where an alert of config/ says that its entry is.
    place = r"docs/runbook\.md#(\S+)"
    return text if public_url is None else re.sub(place, rf"{public_url.rstrip('/')}/runbook/\1", text)


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
