"""Builds the ASGI application: a loop over the features that the settings switch on, around the core."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from doi_proxy.assembly.core import (
    BUDGET_SETTINGS,
    NO_PARTS,
    SuppliedParts,
    build_face,
    build_pages,
    build_prepared_answers,
    name_service,
    new_context,
    open_connections,
    open_core,
    open_service_cache,
    read_public_url,
    read_sub_path,
    set_budget,
)
from doi_proxy.assembly.features import Features
from doi_proxy.assembly.lifecycle import Lifecycle, begin_logging, run_lifespan, set_log_level
from doi_proxy.assembly.operations import create_operations, find_paths
from doi_proxy.assembly.settings import Settings, load
from doi_proxy.endpoints import OperatorGate, allowed_methods
from doi_proxy.errors import refuse_stripped_texts
from doi_proxy.server.proxies import trusted_addresses
from doi_proxy.system.version import read_version
from doi_proxy.web.application import Application, OwnSite
from doi_proxy.web.redirect import Operations

__all__ = ["NO_PARTS", "SuppliedParts", "create", "create_from_environment"]


def create(
    settings: Settings,
    *,
    parts: SuppliedParts = NO_PARTS,
    clock: Callable[[], float] = time.time,
    chance: Callable[[], float] = random.random,
    lifecycle: Lifecycle | None = None,
) -> Application:
    """The application of one process. `clock` returns seconds since the epoch. Raises ConfigurationError."""
    lifecycle = lifecycle or Lifecycle(settings)
    connections = open_connections(settings)
    features = Features(new_context(settings, lifecycle, clock, parts.access_log))
    observers = features.observe()
    if parts.cache is None:
        parts = replace(parts, cache=open_service_cache(settings, clock, observers.store))
    core = open_core(settings, features, observers, parts=parts, connections=connections)
    pages, opened = build_pages(settings), features.open(core)
    face = build_face(settings, core, pages, opened, clock=clock, chance=chance)
    prepared = build_prepared_answers(settings, core, face, clock)

    def trust(new: Settings) -> None:
        connections.set_trusted_proxies(trusted_addresses(new.trusted_proxies))

    lifecycle.on_reload(set_log_level, "log_level")
    lifecycle.on_reload(trust, "trusted_proxies")
    lifecycle.on_reload(lambda new: set_budget(core, new), *BUDGET_SETTINGS)
    fastapi = create_operations(
        read_version(),
        lambda app: run_lifespan(core, pages, opened.services),
        face,
        features,
        opened,
    )
    site = OwnSite(
        read_public_url(settings), read_sub_path(settings).encode(), name_service(settings), time.perf_counter
    )

    def build(gates: Sequence[OperatorGate]) -> Application:
        paths = find_paths(fastapi, face.own_api, face.private, gates)
        operations = Operations(fastapi, paths, lambda path: allowed_methods(fastapi, path.decode("latin-1")), gates)
        return Application(face, operations, site, opened.stages, prepared, connections)

    application = build([gate for gate in opened.gates if not gate.has_listener])
    application.listeners = {
        listener.setting: listener.build(opened.stages, connections) for listener in opened.listeners
    }
    if settings.management_listen:
        application.listeners["management_listen"] = build(opened.gates)
    return application


def create_from_environment() -> Application:
    """The application for another ASGI server, with the settings of the environment. Raises ConfigurationError.

    `uvicorn --factory doi_proxy.main:create_from_environment` runs it. docs/operations.md says what is missing there.
    """
    refuse_stripped_texts()
    settings = load({})
    begin_logging(settings)
    return create(settings)
