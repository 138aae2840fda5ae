"""The systemd units for the settings in force: the shipped ones, in which a few directives follow from them."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.setup.shipped_files import read_shipped
from doi_proxy.server.listening import UNIX
from doi_proxy.system.options import CONFIG_VARIABLE, Settings

#: The settings file of the unit.
CONFIG: Final = Path("/etc/doi-proxy/doi-proxy.toml")
#: The environment file of the unit: the number of instances that share the service.
INSTANCES: Final = Path("/etc/doi-proxy/instances")
#: Instances of one machine, unless an operator enables more.
MOST_INSTANCES: Final = 4
#: The units: one process of the service, the socket that all of them share, and all of them together.
SERVICE: Final = "doi-proxy@.service"
SOCKET: Final = "doi-proxy.socket"
TARGET: Final = "doi-proxy.target"
#: The program of the package, of which the shipped unit is.
PROGRAM: Final = Path("/opt/doi-proxy/bin/doi-proxy")
#: Folders that ProtectHome= hides (systemd.exec(5)).
_HOMES: Final = ("/home", "/root", "/run/user")
_STATE: Final = Path("/var/lib/doi-proxy")
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
    return min(len(os.sched_getaffinity(0)), MOST_INSTANCES)


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
    if any(program.is_relative_to(home) for home in _HOMES):
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
    if scheme != "sqlite" or not folder.is_absolute() or folder.is_relative_to(_STATE):
        return None
    return folder


def _check_path(name: str, path: Path) -> str:
    """The absolute path. Raises ConfigurationError if it would need quotes."""
    absolute = str(path.absolute())
    if not _PATH.fullmatch(absolute):
        raise ConfigurationError(f"{name}: {absolute[:200]!r} has a character with a meaning in units; choose another")
    return absolute
