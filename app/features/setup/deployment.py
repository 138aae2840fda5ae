"""What a unit, a compose file and Kubernetes manifests take from the settings in force."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from app.errors import ConfigurationError
from app.features.options import Settings
from app.system.redaction import redact

#: Settings that a container takes from its image or from the file itself.
CONTAINER_OWNS: Final = frozenset({"host", "port", "store_url", "tls_cert", "tls_key"})
#: Seconds for writing the store at the end, and for a margin.
_WRITE_SECONDS: Final = 12
#: The drain of the settings file that package, image and `setup` write. The program's own default is none.
_PUBLIC_DRAIN: Final = 10.0
_MIB: Final = 1024**2
#: A path that needs no quotes or escapes in any of the files.
_PATH: Final = re.compile(r"/[A-Za-z0-9._~/@+-]*")


def changed_settings(settings: Settings) -> dict[str, Any]:
    """The settings that differ from their defaults, as JSON values."""
    fields, shown = type(settings).model_fields, settings.model_dump(mode="json").items()
    return {name: value for name, value in shown if getattr(settings, name) != fields[name].default}


def is_confidential(settings: Settings, name: str, value: Any) -> bool:
    """Whether a value must not be written into a file that is shown to others."""
    return settings.is_secret(name) or redact(str(value)) != str(value)


def named_files(settings: Settings) -> Iterator[tuple[str, str]]:
    """Each setting that is the path of a file or folder, with its absolute path. Raises ConfigurationError."""
    for name in type(settings).model_fields:
        path = getattr(settings, name)
        if isinstance(path, Path) and name not in CONTAINER_OWNS:
            yield name, check_path(name, path)


def check_path(name: str, path: Path) -> str:
    """The absolute path. Raises ConfigurationError if it would need quotes."""
    absolute = str(path.absolute())
    if not _PATH.fullmatch(absolute):
        raise ConfigurationError(f"{name}: {absolute[:200]!r} has a character with a meaning in configurations")
    return absolute


def read_drain(settings: Settings) -> float:
    """The `drain_seconds` in force where the settings file of the package or of the image is."""
    return settings.drain_seconds or _PUBLIC_DRAIN


def stop_seconds(drain: float, grace: float) -> str:
    """The time from SIGTERM until the process may be killed."""
    return str(math.ceil(drain + grace) + _WRITE_SECONDS)


def mebibytes(size: float) -> int:
    """A size in MiB, rounded up."""
    return math.ceil(size / _MIB)


def number(value: float) -> str:
    """A number; a whole one without `.0`."""
    return json.dumps(int(value) if value == int(value) else value)


def toml_line(settings: Settings, name: str, value: Any) -> str:
    """The line of a setting in its table of a TOML file."""
    # TOML has the strings of JSON, but no DEL in them (TOML 1.0.0, "String").
    return f"{settings.table_and_key(name)[1]} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f")
