"""Puts together what clients see of names: redirects, API, pages and the express lane."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from app import __version__
from app.assembly.resolving import Parts
from app.assembly.settings import Settings
from app.features.branding.branding import Branding
from app.features.country.country import open_countries
from app.resolver.destination import Destinations
from app.resolver.prefix_chain import PrefixChain
from app.resolver.which_ra import WhichRa
from app.server.prepared_answers import ExpressLane
from app.web.api import RestApi
from app.web.application import Face
from app.web.conditions import Conditions
from app.web.error_handlers import ErrorPages
from app.web.name_pages import NamePages
from app.web.pages import Link, Pages
from app.web.record_headers import read_allowed
from app.web.redirect import Facts, Redirects
from app.web.section import Section
from app.web.stage import Stages


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
        max_age=settings.web_max_age,
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
    )


def build_pages(settings: Settings) -> Pages:
    """The pages, with the texts and templates of the institution. Raises ConfigurationError."""
    return Pages(
        branding=read_branding(settings),
        base_url_hint=settings.public_url or "",
        product_version=__version__,
        contact=settings.web_contact,
    )


def build_face(
    parts: Parts,
    conditions: Conditions,
    facts: Facts,
    prefixes: PrefixChain,
    stages: Stages,
    sections: Sequence[Section],
) -> Face:
    """The answers to names, and the pages."""
    settings, pages = parts.settings, build_pages(parts.settings)
    link = Link(base=read_sub_path(settings))
    errors = ErrorPages(pages=pages, link=link, sections=sections)
    api = RestApi(
        resolver=parts.resolver,
        conditions=conditions,
        clock=facts.clock,
        max_age=facts.max_age,
        resolves=settings.resolve,
        stages=stages,
    )
    name_pages = NamePages(pages=pages, link=link, sections=sections, clock=facts.clock, max_age=facts.max_age)
    redirects = Redirects(
        resolver=parts.resolver,
        conditions=conditions,
        destinations=Destinations(parts.resolver, prefixes, resolves=settings.resolve),
        api=api,
        name_pages=name_pages,
        facts=facts,
        stages=stages,
        sections=sections,
    )
    which_ra = WhichRa(parts.resolver, prefixes, parts.upstream.agencies)
    return Face(redirects, which_ra, api, errors, pages, link, conditions)


def build_express_lane(parts: Parts, stages: Stages, clock: Callable[[], float]) -> ExpressLane | None:
    """The prepared answers, if they are switched on."""
    if not parts.settings.express_lane:
        return None
    return ExpressLane(
        parts.resolver,
        stages,
        clock=clock,
        timer=time.perf_counter,
        sub_path=read_sub_path(parts.settings).encode(),
        max_bytes=parts.settings.express_memory_bytes,
    )
