"""The systemd unit for the settings in force: the shipped one, in which a few directives follow from them."""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path
from typing import Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.setup.shipped_files import read_shipped
from doi_proxy.system.options import CONFIG_VARIABLE, Settings

#: The settings file of the unit.
CONFIG: Final = Path("/etc/doi-proxy/doi-proxy.toml")
#: The program of the package, of which the shipped unit is.
PROGRAM: Final = Path("/opt/doi-proxy/bin/doi-proxy")
#: Folders that ProtectHome= hides (systemd.exec(5)).
_HOMES: Final = ("/home", "/root", "/run/user")
_STATE: Final = Path("/var/lib/doi-proxy")
#: Ports below this one need a capability.
_UNPRIVILEGED: Final = 1024
_BIND: Final = "CAP_NET_BIND_SERVICE"
#: A path that needs no quotes or escapes.
_PATH: Final = re.compile(r"/[A-Za-z0-9._~/@+-]*")


def find_program() -> Path:
    """The program that runs, by its path behind links. That of the package if this is not an installed program."""
    for program in (Path(sys.argv[0]).resolve(), Path(sysconfig.get_path("scripts"), PROGRAM.name)):
        if program.name == PROGRAM.name and program.is_file():
            return program
    return PROGRAM


def write_unit(settings: Settings, config: Path, program: Path) -> str:
    """A systemd unit. The settings themselves stay in the file `config`. Raises ConfigurationError."""
    values = {
        "Environment": f"{CONFIG_VARIABLE}={_check_path('--config', config)}",
        "ExecStart": f"{_check_path('the program', program)} serve",
    }
    if any(program.is_relative_to(home) for home in _HOMES):
        values["ProtectHome"] = "read-only"
    folder = _find_store_folder(settings.store_url)
    if folder is not None:
        values["ProtectSystem"] = f"strict\nReadWritePaths={_check_path('store_url', folder)}"
    if 0 < settings.port < _UNPRIVILEGED:
        values["CapabilityBoundingSet"] = f"{_BIND}\nAmbientCapabilities={_BIND}"
    unit = read_shipped("systemd/doi-proxy.service")
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
