"""Writes Kubernetes manifests from the templates beside this module."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from app import __version__
from app.features.options import Settings, variable
from app.features.setup.deployment import (
    CONTAINER_OWNS,
    changed_settings,
    is_confidential,
    mebibytes,
    named_files,
    number,
    stop_seconds,
    toml_line,
)
from app.features.setup.template import fill_file
from app.system.redaction import redact

#: The files of config/kubernetes that one stream contains too.
MANIFESTS: Final = (
    "deployment.yaml",
    "service.yaml",
    "pod-disruption-budget.yaml",
    "horizontal-pod-autoscaler.yaml",
    "network-policy.yaml",
    "secret.yaml",
)
#: kustomization.yaml replaces this name of the image.
KUSTOMIZED_IMAGE: Final = "doi-proxy"
SETTINGS_FILE: Final = "doi-proxy.toml"
_IMAGE: Final = f"registry.example.org/doi-proxy:{__version__}"
_SECRETS: Final = "/run/secrets/doi-proxy"
_EXAMPLE_STORE: Final = "valkey://:PASSWORD@valkey:6379/0"
#: Bytes that a worker needs besides its memory tier and its prepared answers.
_PROGRAM_BYTES: Final = 192 * 1024**2
#: The share of the memory limit that the settings may use.
_MEMORY_SHARE: Final = 0.75
#: Thousandths of a processor that a worker requests.
_CPU: Final = 500
_KEY: Final = re.compile(r"([a-z_]+) = (.*)")
_HEAD: Final = """\
# doi-proxy on Kubernetes 1.27 or later: edit the lines marked "Replace", then kubectl apply -n NAMESPACE -f FILE
# The records are in a Valkey or Redis server that all replicas share. This file does not contain one.
"""
_CONFIG_MAP: Final = """\
# After a change: kubectl rollout restart deployment/doi-proxy
apiVersion: v1
kind: ConfigMap
metadata:
  name: doi-proxy
  labels:
    app.kubernetes.io/name: doi-proxy
data:
  doi-proxy.toml: |
"""


def write_manifests(settings: Settings) -> str:
    """All manifests in one stream. Raises ConfigurationError."""
    documents = [write_manifest(name, settings, f"{_IMAGE}  # Replace") for name in MANIFESTS]
    lines = write_replica_settings(settings).splitlines()
    config_map = _CONFIG_MAP + "".join(f"    {line}\n" if line else "\n" for line in lines)
    return _HEAD + "---\n" + "---\n".join([*documents, config_map])


def write_manifest(name: str, settings: Settings, image: str) -> str:
    """One manifest of config/kubernetes."""
    replica = _replica_values(settings)
    memory = settings.workers * (replica["cache_memory_bytes"] + replica["express_memory_bytes"] + _PROGRAM_BYTES)
    limit = mebibytes(memory / _MEMORY_SHARE)
    secrets = [
        secret
        for secret in type(settings).model_fields
        if settings.is_secret(secret) and getattr(settings, secret) is not None
    ]
    values = {
        "IMAGE": image,
        "DRAIN": number(replica["drain_seconds"]),
        "GRACE": number(replica["grace_seconds"]),
        "STOP": stop_seconds(replica["drain_seconds"], replica["grace_seconds"]),
        "CPU": str(_CPU * settings.workers),
        "MEMORY": str(limit),
        "MEMORY_REQUEST": str(limit // 2),
        "STORE_URL": _store_url(settings.store_url),
        "SECRETS": "\n".join(f"{_file(secret)}: REPLACE" for secret in secrets),
        "SECRET_VARIABLES": "\n".join(
            f"- name: {variable(secret)}_FILE\n  value: {_SECRETS}/{_file(secret)}" for secret in secrets
        ),
    }
    return fill_file(f"kubernetes/{name}", values)


def _file(name: str) -> str:
    return name.replace("_", "-")


def _store_url(url: str) -> str:
    """The URL of a server with its password masked. Replicas cannot share any other store."""
    return json.dumps(redact(url)) if url.startswith(("valkey", "redis")) else _EXAMPLE_STORE


def _replica_values(settings: Settings) -> dict[str, Any]:
    """The settings of a replica: those in force, else those of the template."""
    text = fill_file(f"kubernetes/{SETTINGS_FILE}", {})
    return {**settings.model_dump(), **_template_values(settings, text), **changed_settings(settings)}


def _template_values(settings: Settings, text: str) -> dict[str, Any]:
    return {name: json.loads(value) for _, name, value in _settings_of(settings, text) if name}


def _settings_of(settings: Settings, text: str) -> Iterator[tuple[str, str, str]]:
    """Each line of the settings file, with the name and the text of its setting, or with "" for both."""
    table = ""
    for line in text.splitlines():
        table = line.strip("[]") if line.startswith("[") else table
        found = _KEY.fullmatch(line)
        name = _name(settings, table, found[1]) if found else ""
        yield line, name, found[2] if found else ""


def _name(settings: Settings, table: str, key: str) -> str:
    return next(name for name in type(settings).model_fields if settings.table_and_key(name) == (table, key))


def write_replica_settings(settings: Settings) -> str:
    """The settings file of all replicas: the template, with the settings in force that differ from the defaults."""
    files = dict(named_files(settings))
    changed = {
        name: value
        for name, value in {**changed_settings(settings), **files}.items()
        if name not in CONTAINER_OWNS and not is_confidential(settings, name, value)
    }
    text = fill_file(f"kubernetes/{SETTINGS_FILE}", {})
    present = set(_template_values(settings, text))
    others = {name: value for name, value in changed.items() if name not in present}
    lines: list[str] = []
    tables: set[str] = set()
    for line, name, _ in _settings_of(settings, text):
        lines.append(toml_line(settings, name, changed[name]) if name in changed else line)
        if line.startswith("["):
            tables.add(line.strip("[]"))
            lines += _table_lines(settings, line.strip("[]"), others, files)
    for table in dict.fromkeys(settings.table_and_key(name)[0] for name in others):
        if table not in tables:
            lines += ["", f"[{table}]", *_table_lines(settings, table, others, files)]
    return "\n".join(lines) + "\n"


def _table_lines(settings: Settings, table: str, others: Mapping[str, Any], files: Mapping[str, str]) -> Iterator[str]:
    for name, value in others.items():
        if settings.table_and_key(name)[0] == table:
            if name in files:
                # A pod does not have this file.
                yield "# Replace: mount this file, then remove the # of the next line."
            yield f"#{toml_line(settings, name, value)}" if name in files else toml_line(settings, name, value)
