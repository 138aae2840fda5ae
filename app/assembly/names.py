"""Puts together what clients see of names: redirects, API, pages and the express lane."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from app import __version__
from app.assembly.resolving import Parts
from app.assembly.settings import Settings
from app.features.access_log.access_log import AccessLog
from app.features.branding.branding import Branding
from app.features.compression.compression import Compression
from app.features.country.country import open_countries
from app.features.library.library import Library
from app.features.library.preferences import Preferences
from app.features.limits.counts import ClientCounts
from app.features.limits.limits import ClientLimits
from app.features.lists.opening import build_suggested_names
from app.features.metrics.requests import HttpMetrics
from app.resolver.destination import Destinations
from app.resolver.prefix_chain import PrefixChain
from app.resolver.which_ra import WhichRa
from app.server.prepared_answers import ExpressLane
from app.web.api import RestApi
from app.web.application import Face
from app.web.error_handlers import ErrorPages
from app.web.name_pages import NamePages
from app.web.pages import Link, Pages
from app.web.record_headers import read_allowed
from app.web.redirect import Facts, Redirects


def read_sub_path(settings: Settings) -> str:
    """The path under which a front proxy serves the service, without a slash at its end."""
    return urlsplit(settings.public_url or "").path.rstrip("/")


def read_public_url(settings: Settings) -> str | None:
    """This resolver's own URL without a slash at its end."""
    return settings.public_url.rstrip("/") if settings.public_url else None


def read_facts(settings: Settings, clock: Callable[[], float], chance: Callable[[], float]) -> Facts:
    """What redirects need besides a request. Raises ConfigurationError."""
    return Facts(
        clock=clock,
        chance=chance,
        country=open_countries(settings.country_database),
        record_headers=read_allowed(settings.record_headers),
    )


def read_branding(settings: Settings) -> Branding:
    """The settings of branding as one value."""
    return Branding(
        name=settings.branding_name,
        logo=settings.branding_logo,
        accent=settings.branding_accent,
        accent_dark=settings.branding_accent_dark,
        background=settings.branding_background,
        background_dark=settings.branding_background_dark,
        home_text=settings.branding_home_text,
        help_links=settings.branding_help_links,
        search_links=settings.branding_search_links,
        imprint=settings.branding_imprint,
        privacy=settings.branding_privacy,
        footer=settings.branding_footer,
        templates=settings.branding_templates,
        messages=settings.branding_messages,
        languages=settings.branding_languages,
        german_article=settings.branding_german_article,
    )


def build_pages(settings: Settings) -> Pages:
    """The pages, with the texts and templates of the institution. Raises ConfigurationError."""
    return Pages(
        branding=read_branding(settings),
        base_url_hint=settings.public_url or "",
        product_version=__version__,
        contact=settings.web_contact,
    )


def build_face(parts: Parts, limits: ClientLimits, facts: Facts, prefixes: PrefixChain, library: Library) -> Face:
    """The answers to names, and the pages."""
    settings, pages = parts.settings, build_pages(parts.settings)
    pages.has_preferences = lambda: library.is_active
    link = Link(base=read_sub_path(settings))
    compression = Compression(
        min_bytes=settings.web_compression_min_bytes, memory_bytes=settings.web_compression_memory_bytes
    )
    suggested_names = build_suggested_names(settings, parts.resolver)
    errors = ErrorPages(pages=pages, link=link, suggested_names=suggested_names)
    api = _build_api(parts, limits, facts, compression)
    name_pages = NamePages(
        pages=pages, link=link, suggested_names=suggested_names, clock=facts.clock, max_age=settings.web_max_age
    )
    redirects = Redirects(
        resolver=parts.resolver,
        limits=limits,
        prefixes=prefixes,
        destinations=Destinations(parts.resolver, prefixes, resolves=settings.resolve),
        api=api,
        name_pages=name_pages,
        facts=facts,
        library=library,
        suggested_names=suggested_names,
        max_age=settings.web_max_age,
    )
    return Face(
        redirects=redirects,
        which_ra=WhichRa(parts.resolver, prefixes, parts.upstream.agencies),
        api=api,
        errors=errors,
        preferences=_build_preferences(settings, library, errors, pages, link),
        pages=pages,
        link=link,
        compression=compression,
    )


def _build_api(parts: Parts, limits: ClientLimits, facts: Facts, compression: Compression) -> RestApi:
    return RestApi(
        resolver=parts.resolver,
        limits=limits,
        clock=facts.clock,
        max_age=parts.settings.web_max_age,
        resolves=parts.settings.resolve,
        compression=compression,
    )


def _build_preferences(
    settings: Settings, library: Library, errors: ErrorPages, pages: Pages, link: Link
) -> Preferences:
    return Preferences(
        library=library,
        pages=pages,
        errors=errors,
        link=link,
        public_url=read_public_url(settings),
        max_age=settings.library_cookie_seconds,
    )


def build_express_lane(
    parts: Parts,
    clock: Callable[[], float],
    metrics: HttpMetrics,
    access_log: AccessLog | None,
    clients: ClientCounts,
) -> ExpressLane | None:
    """The express lane, if it is switched on."""
    if not parts.settings.express_lane:
        return None
    return ExpressLane(
        parts.resolver,
        clock,
        metrics.count,
        clients.count,
        timer=metrics.timer,
        access_log=access_log,
        sub_path=read_sub_path(parts.settings).encode(),
        max_bytes=parts.settings.express_memory_bytes,
    )
