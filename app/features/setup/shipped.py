"""The generated files of the repository: one version of each, for the defaults."""

from __future__ import annotations

from typing import Final

from app.features.options import Settings
from app.features.setup.deployment_files import CONFIG, write_compose, write_unit
from app.features.setup.front_files import GENERATED, write_file
from app.features.setup.kubernetes_files import (
    KUSTOMIZED_IMAGE,
    MANIFESTS,
    SETTINGS_FILE,
    write_manifest,
    write_replica_settings,
)
from app.features.setup.template import fill_file

#: The settings of a public service, the networks that its rate does not limit, and the alerts. `setup` writes them too.
_PUBLIC_FILES: Final = ("systemd/doi-proxy.toml", "systemd/allow.txt", "prometheus/alerts.yml")


def shipped_files(defaults: Settings) -> dict[str, str]:
    """Each file: its path below the root of the repository, and its content."""
    folder = "config/kubernetes"
    return {
        **{f"config/{path}": write_file(path, front) for path, front in GENERATED.items()},
        "config/systemd/doi-proxy.service": write_unit(defaults, CONFIG),
        **{f"config/{path}": fill_file(path, {}) for path in _PUBLIC_FILES},
        "docker-compose.yml": write_compose(defaults),
        **{f"{folder}/{name}": write_manifest(name, defaults, KUSTOMIZED_IMAGE) for name in MANIFESTS},
        f"{folder}/{SETTINGS_FILE}": write_replica_settings(defaults),
    }
