"""The loop over the features: loads the installed ones, opens those that are switched on, and joins what they add."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar, cast

from doi_proxy.errors import ConfigurationError
from doi_proxy.features import NAMES
from doi_proxy.features.feature import (
    Context,
    Core,
    Feature,
    FeatureType,
    Listener,
    Observers,
    Opened,
    require_libraries,
)
from doi_proxy.system.check import Service

if TYPE_CHECKING:
    from doi_proxy.features.feature import Part, UpstreamKind
    from doi_proxy.store.file import Opener
    from doi_proxy.upstream.guard import RecordQuery


@cache
def installed() -> tuple[type[Feature], ...]:
    """The features whose folders are there. Raises ConfigurationError if one needs another that is not there."""
    found = [load_feature(name) for name in NAMES if find_spec(f"doi_proxy.features.{name}") is not None]
    names = {feature.name for feature in found}
    for feature in found:
        for needed in feature.needs:
            if needed not in names:
                raise ConfigurationError(
                    f"the feature {feature.name} needs the feature {needed}, which is not installed; install doi-proxy "
                    f"again, or delete app/doi_proxy/features/{feature.name} too"
                )
    return tuple(found)


def load_feature(name: str) -> type[Feature]:
    """The feature of a folder: the class that its file feature.py has."""
    module = import_module(f"doi_proxy.features.{name}.feature")
    classes = (each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Feature))
    return next(each for each in classes if each.__module__ == module.__name__)


@cache
def upstream_kinds() -> Mapping[str, UpstreamKind]:
    """The upstreams that features open, by the scheme of their URLs."""
    return {scheme: kind for feature in installed() for scheme, kind in feature.upstreams.items()}


@cache
def store_openers() -> Mapping[str, Opener]:
    """What opens a store of a feature, by the scheme of its URL."""
    return {scheme: opener for feature in installed() for scheme, opener in feature.stores.items()}


def find_records() -> Any:
    """The records that a feature has in a SQLite store. A process without such a store does not import them."""
    return next((found for feature in installed() if (found := feature.store_records()) is not None), None)


@cache
def text_packages() -> tuple[str, ...]:
    """The packages of the installed features that have texts and templates, in their folder `texts`."""
    packages = (f"doi_proxy.features.{feature.name}" for feature in installed())
    return tuple(package for package in packages if files(package).joinpath("texts").is_dir())


class Features:
    """The features of one process: an object for each that is installed, of which those switched on are opened.

    Raises ConfigurationError if a library of one is not installed.
    """

    def __init__(self, context: Context) -> None:
        self._all = {feature: feature(context) for feature in installed()}
        self._on = [own for feature, own in self._all.items() if feature.is_on(context.settings)]
        for own in self._on:
            require_libraries(type(own))
        self.context = context

    def __getitem__(self, feature: type[FeatureType]) -> FeatureType:
        """See Others."""
        return cast(FeatureType, self._all[feature])

    def observe(self) -> Observers:
        """The observers of all features as one. At most one of them observes answers, the store and exchanges."""
        found = [feature.observe() for feature in self._on]
        upstreams = [observers.upstream for observers in found if observers.upstream is not None]

        def first(name: str) -> Any:
            return next((observer for each in found if (observer := getattr(each, name)) is not None), None)

        return Observers(
            resolver=first("resolver"),
            upstream=_join_upstreams(upstreams) if upstreams else None,
            store=first("store"),
            exchanges=first("exchanges"),
            meter=first("meter"),
        )

    def add_sources(self, core: Core) -> None:
        """Add the sources of answers that go before the cache."""
        for feature in self._on:
            feature.add_sources(core)

    def open(self, core: Core) -> Opened:
        """Open the features, and fold what they add. Raises ConfigurationError."""
        parts = [part for feature in self._on for part in feature.open(core, self)]
        return fold_parts(core, parts)

    def __iter__(self) -> Iterator[Feature]:
        """Those that are switched on, in their order."""
        return iter(self._on)


def _join_upstreams(openers: Sequence[Callable[[int], RecordQuery]]) -> Callable[[int], RecordQuery]:
    def join(number: int) -> RecordQuery:
        records = [opener(number) for opener in openers]

        def record_query(outcome: str, seconds: float) -> None:
            for record in records:
                record(outcome, seconds)

        return record_query

    return openers[0] if len(openers) == 1 else join


PartType = TypeVar("PartType")


def fold_parts(core: Core, found: Sequence[Part]) -> Opened:
    """What features add, by kind, each in their order. A part can be of several kinds."""
    # Commands, which load the features too, need none of these.
    from doi_proxy.endpoints import OperatorGate
    from doi_proxy.web.stage import Section, fold_stages

    def of(kind: type[PartType]) -> list[PartType]:
        return [part for part in found if isinstance(part, kind)]

    return Opened(core, fold_stages(found), of(Section), of(Service), of(OperatorGate), of(Listener))
