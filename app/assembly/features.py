"""The loop over the features: loads the installed ones, opens those that are switched on, and joins what they add."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from app.features import NAMES
from app.features.feature import Context, Feature, Observers, Opened, UpstreamKind, require_libraries
from app.features.options import Settings


@cache
def installed() -> tuple[Feature, ...]:
    """The features whose folders are there with those that they need, each after those that it needs."""
    found = {name: load(name) for name in NAMES if find_spec(f"app.features.{name}") is not None}
    ordered: dict[str, Feature] = {}

    def add(name: str) -> bool:
        feature = found.get(name)
        if feature is None or not all(needed in ordered or add(needed) for needed in feature.needs):
            return False
        ordered.setdefault(name, feature)
        return True

    for name in found:
        add(name)
    return tuple(ordered.values())


@cache
def upstream_kinds() -> Mapping[str, UpstreamKind]:
    """The upstreams that features open, by the scheme of their URLs."""
    return {scheme: kind for feature in installed() for scheme, kind in feature.upstreams.items()}


def load(name: str) -> Feature:
    """The feature in a folder."""
    return cast(Feature, import_module(f"app.features.{name}.feature").FEATURE)


def switched_on(settings: Settings) -> tuple[Feature, ...]:
    """The features that the settings switch on. Raises ConfigurationError if a library of one is not installed."""
    features = [feature for feature in installed() if feature.is_on(settings)]
    for feature in features:
        require_libraries(feature)
    return tuple(features)


def join_observers(found: Iterable[Observers]) -> Observers:
    """The observers of all features as one. At most one of them observes answers, the store and exchanges."""
    joined = list(found)
    upstreams = [one.upstream for one in joined if one.upstream is not None]
    return Observers(
        resolver=next((one.resolver for one in joined if one.resolver is not None), None),
        upstream=_join_upstreams(upstreams) if upstreams else None,
        store=next((one.store for one in joined if one.store is not None), None),
        exchanges=next((one.exchanges for one in joined if one.exchanges is not None), None),
    )


class _Several:
    """Passes a query on to several observers."""

    def __init__(self, observers: Sequence[Any]) -> None:
        self._observers = observers

    def record_query(self, outcome: str, seconds: float) -> None:
        """Record the end of a query."""
        for observer in self._observers:
            observer.record_query(outcome, seconds)


def _join_upstreams(openers: Sequence[Callable[[int], Any]]) -> Callable[[int], Any]:
    if len(openers) == 1:
        return openers[0]
    return lambda number: _Several([opener(number) for opener in openers])


def open_features(features: Sequence[Feature], context: Context) -> Opened:
    """Open the features, and join what they add in the order of NAMES. Raises ConfigurationError."""
    opened: dict[str, Opened] = {}
    for feature in features:
        if feature.open is not None:
            opened[feature.name] = feature.open(context)
            context.services += opened[feature.name].services
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
        listeners=[listener for part in parts for listener in part.listeners],
    )
