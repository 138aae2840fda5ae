"""The loop over the features: loads the installed ones, opens those that are switched on, and joins what they add."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from doi_proxy.errors import ConfigurationError
from doi_proxy.features import NAMES
from doi_proxy.features.feature import Context, Feature, Observers, Opened, UpstreamKind, require_libraries
from doi_proxy.features.options import Settings
from doi_proxy.web.languages import TextFolder

if TYPE_CHECKING:
    from doi_proxy.upstream.guard import RecordQuery


@cache
def installed() -> tuple[Feature, ...]:
    """The features whose folders are there, each after those that it needs.

    Raises ConfigurationError if one needs another that is not there.
    """
    found = {name: _load_whole(name) for name in NAMES if find_spec(f"doi_proxy.features.{name}") is not None}
    ordered: dict[str, Feature] = {}

    def add(name: str) -> None:
        for needed in found[name].needs:
            if needed not in found:
                raise _misses(name, needed)
            if needed not in ordered:
                add(needed)
        ordered.setdefault(name, found[name])

    for name in found:
        add(name)
    return tuple(ordered.values())


def _load_whole(name: str) -> Feature:
    try:
        return load_feature(name)
    except ModuleNotFoundError as error:
        _, _, needed = (error.name or "").partition("doi_proxy.features.")
        if not needed:
            raise
        raise _misses(name, needed.partition(".")[0]) from error


def _misses(name: str, needed: str) -> ConfigurationError:
    return ConfigurationError(
        f"the feature {name} needs the feature {needed}, which is not installed; install doi-proxy again, or delete "
        f"app/doi_proxy/features/{name} too"
    )


@cache
def upstream_kinds() -> Mapping[str, UpstreamKind]:
    """The upstreams that features open, by the scheme of their URLs."""
    return {scheme: kind for feature in installed() for scheme, kind in feature.upstreams.items()}


@cache
def text_folders() -> tuple[TextFolder, ...]:
    """The texts and templates of the features that are installed."""
    folders = (TextFolder(f"doi_proxy.features.{feature.name}", feature.samples) for feature in installed())
    return tuple(folder for folder in folders if files(folder.package).joinpath("texts").is_dir())


@cache
def feature_modules(kind: str) -> tuple[Any, ...]:
    """The modules of this name in the folders of the features that are installed."""
    folders = (f"doi_proxy.features.{name}" for name in NAMES)
    return tuple(
        import_module(f"{folder}.{kind}")
        for folder in folders
        if find_spec(folder) is not None and find_spec(f"{folder}.{kind}") is not None
    )


def load_feature(name: str) -> Feature:
    """The feature in a folder. Its errors are loaded with it: the tokens of all errors are one vocabulary."""
    module = import_module(f"doi_proxy.features.{name}.feature")
    if Path(str(module.__file__)).with_name("errors.py").exists():
        import_module(f"doi_proxy.features.{name}.errors")
    return cast(Feature, module.FEATURE)


def switched_on(settings: Settings) -> tuple[Feature, ...]:
    """The features that the settings switch on. Raises ConfigurationError if a library of one is not installed."""
    features = [feature for feature in installed() if feature.is_on(settings)]
    for feature in features:
        require_libraries(feature)
    return tuple(features)


def join_observers(found: Iterable[Observers]) -> Observers:
    """The observers of all features as one. At most one of them observes answers, the store and exchanges."""
    joined = list(found)
    upstreams = [observers.upstream for observers in joined if observers.upstream is not None]
    return Observers(
        resolver=next((observers.resolver for observers in joined if observers.resolver is not None), None),
        upstream=_join_upstreams(upstreams) if upstreams else None,
        store=next((observers.store for observers in joined if observers.store is not None), None),
        exchanges=next((observers.exchanges for observers in joined if observers.exchanges is not None), None),
    )


def _join_upstreams(openers: Sequence[Callable[[int], RecordQuery]]) -> Callable[[int], RecordQuery]:
    def join(number: int) -> RecordQuery:
        records = [opener(number) for opener in openers]

        def record_query(outcome: str, seconds: float) -> None:
            for record in records:
                record(outcome, seconds)

        return record_query

    return openers[0] if len(openers) == 1 else join


def open_features(features: Sequence[Feature], context: Context) -> Opened:
    """Open the features, and join what they add in the order of NAMES. Raises ConfigurationError."""
    opened: dict[str, Opened] = {}
    for feature in features:
        if feature.open is not None:
            opened[feature.name] = feature.open(context)
            context.services += opened[feature.name].services
            context.gates += opened[feature.name].gates
    parts = [opened[name] for name in NAMES if name in opened]
    context.own_routes = tuple(route for part in parts for route in part.own_api.values())
    return Opened(
        stages=[stage for part in parts for stage in part.stages],
        sections=[section for part in parts for section in part.sections],
        services=[service for part in parts for service in part.services],
        routes=[route for part in parts for route in part.routes],
        own_api={path: route for part in parts for path, route in part.own_api.items()},
        private=[path for part in parts for path in part.private],
        gates=[gate for part in parts for gate in part.gates],
        operator_routes={path: add for part in parts for path, add in part.operator_routes.items()},
        listeners={name: listener for part in parts for name, listener in part.listeners.items()},
    )
