"""The generated files of the repository: one version of each, for the defaults."""

from __future__ import annotations

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


def shipped_files(defaults: Settings) -> dict[str, str]:
    """Each file: its path below the root of the repository, and its content."""
    folder = "config/kubernetes"
    return {
        **{f"config/{path}": write_file(path, front) for path, front in GENERATED.items()},
        "config/systemd/doi-proxy.service": write_unit(defaults, CONFIG),
        "docker-compose.yml": write_compose(defaults),
        **{f"{folder}/{name}": write_manifest(name, defaults, KUSTOMIZED_IMAGE) for name in MANIFESTS},
        f"{folder}/{SETTINGS_FILE}": write_replica_settings(defaults),
    }
