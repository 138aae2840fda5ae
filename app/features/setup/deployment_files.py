"""Writes a systemd unit and a compose file from the templates beside this module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from app import __version__
from app.features.options import Settings, variable
from app.features.setup.deployment import (
    CONTAINER_OWNS,
    changed_settings,
    check_path,
    is_confidential,
    mebibytes,
    named_files,
    number,
    read_drain,
    stop_seconds,
)
from app.features.setup.template import fill_file

#: The settings file of the unit.
CONFIG: Final = Path("/etc/doi-proxy/doi-proxy.toml")
_STATE: Final = Path("/var/lib/doi-proxy")
#: Ports below this one need a capability.
_UNPRIVILEGED: Final = 1024
_BIND: Final = "CAP_NET_BIND_SERVICE"
#: The variables that docker-compose.yml takes from its environment if they are not set here.
_PASSED_ON: Final = ("public_url", "upstream_contact", "upstream_url", "upstream_rate", "resolve")
#: Settings that docker-compose.yml writes itself.
_WRITTEN: Final = frozenset({"cache_memory_bytes", "trusted_proxies", "workers"})
#: MiB of a proxy in a container, besides larger memory tiers.
_LEAST_MEMORY: Final = 512


def write_unit(settings: Settings, config: Path) -> str:
    """A systemd unit. The settings themselves stay in the file `config`. Raises ConfigurationError."""
    low_port = 0 < settings.port < _UNPRIVILEGED
    values = {
        "CONFIG": check_path("--config", config),
        "DRAIN": number(read_drain(settings)),
        "GRACE": number(settings.grace_seconds),
        "STOP": stop_seconds(read_drain(settings), settings.grace_seconds),
        "WRITABLE": _writable(settings.store_url),
        "CAPABILITIES": f"AmbientCapabilities={_BIND}\nCapabilityBoundingSet={_BIND}"
        if low_port
        else "CapabilityBoundingSet=",
    }
    return fill_file("systemd/doi-proxy.service", values)


def _writable(store_url: str) -> str:
    """The folder of a SQLite store that is not in the unit's state folder. A relative path is not of this unit."""
    scheme, _, path = store_url.partition(":///")
    folder = Path(path).parent
    if scheme != "sqlite" or not folder.is_absolute() or folder.is_relative_to(_STATE):
        return ""
    return f"ReadWritePaths={check_path('store_url', folder)}"


def write_compose(settings: Settings) -> str:
    """A compose file: nginx, two proxies, Valkey, monitoring. Raises ConfigurationError."""
    files = dict(named_files(settings))
    changed = {**changed_settings(settings), **files}
    others = {name: changed[name] for name in changed if name not in {*_PASSED_ON, *CONTAINER_OWNS, *_WRITTEN}}
    memory = mebibytes(2 * settings.cache_memory_bytes * settings.workers)
    values = {
        "VERSION": __version__,
        **{name.upper(): _value(settings, name, changed.get(name)) for name in _PASSED_ON},
        "CACHE_MEMORY_BYTES": str(settings.cache_memory_bytes),
        "SETTINGS": "\n".join(f"{variable(name)}:{_value(settings, name, value)}" for name, value in others.items()),
        "VOLUMES": "\n".join(["volumes:", *(f"  - {file}:{file}:ro" for file in files.values())]) if files else "",
        "MEMORY": str(max(_LEAST_MEMORY, memory)),
        "WORKERS": str(settings.workers),
        "STOP": stop_seconds(read_drain(settings), settings.grace_seconds),
        "PORT": str(settings.port),
    }
    return fill_file("compose/docker-compose.yml", values)


def _value(settings: Settings, name: str, value: Any) -> str:
    """A value of the environment in YAML. Without one, and for a secret, the value comes from .env."""
    if value is None or is_confidential(settings, name, value):
        return ""
    # Compose replaces $NAME, and reads $$ as a dollar sign (Compose Specification, "Interpolation").
    return " " + json.dumps(str(value), ensure_ascii=False).replace("$", "$$")
