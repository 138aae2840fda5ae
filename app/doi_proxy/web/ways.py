"""What a reader can do where a link leads nowhere: where else to look, where to report it, and whom to ask.

Everything is a link or a mail that the reader sends. No address gets the name before it is clicked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from markupsafe import Markup, escape

from doi_names.name import HandleName
from doi_names.uri import component, to_url
from doi_proxy.web import shown_values
from doi_proxy.web.branding import Brand, NamedLink
from doi_proxy.web.languages import Catalogue

#: Lists the copies of an address that the archive has.
_ARCHIVE: Final = "https://web.archive.org/web/*/"
_DOI_RESOLVER: Final = "https://doi.org"
#: A longer name is not put into a mail, in characters: mail programs do not take such links.
_MAX_MAILED: Final = 500
_MAILTO: Final = "mailto:"

#: What is wrong with a name: nobody registered it, its page does not work, it was withdrawn, or that is not known.
Trouble = Literal["missing", "dead", "gone", "unverified"]
_Kind = Literal["search", "archive", "free", "report", "ask"]
#: What can help, the likeliest first. A name that was never registered led to no page, so a search for the
#: right name comes before the archive.
_ORDER: Final[dict[Trouble, tuple[_Kind, ...]]] = {
    "missing": ("search", "report", "archive", "ask"),
    "dead": ("archive", "free", "search", "report", "ask"),
    "gone": ("search", "free", "ask"),
    "unverified": ("free", "ask"),
}


@dataclass(frozen=True, slots=True)
class Way:
    """One thing that a reader can do: a sentence, and the links that belong to it."""

    text: Markup
    links: Sequence[Markup]


@dataclass(frozen=True, slots=True)
class Helpers:
    """Who can help with a name. `agency` is "" and the others are None if they are not known."""

    operator: str | None = None
    agency: str = ""
    #: The address of the agency's form, an e-mail address, or words.
    contact: str | None = None


def list_ways(
    texts: Catalogue, brand: Brand, helpers: Helpers, name: HandleName, trouble: Trouble, targets: Sequence[str] = ()
) -> list[Way]:
    """What a reader can do about a name, the most useful first. `targets` are the addresses that it led to."""
    agency = helpers.agency or texts("not_found.report_agency")

    def describe(way: _Kind) -> Way:
        match way:
            case "search":
                return Way(texts("not_found.search"), _fill(brand.search_links, name))
            case "archive":
                return Way(texts("ways.archive"), _list_archives(texts, name, targets))
            case "free":
                return Way(texts("ways.free"), _fill(brand.free_links, name) if name.is_doi else ())
            case "report":
                key = "ways.report_dead" if trouble == "dead" else "not_found.report"
                return Way(texts(key, agency=agency), _report(texts, helpers, name, trouble, targets))
            case "ask":
                return Way(texts("not_found.ask"), _ask(texts, helpers.operator, name, trouble, targets))

    return [way for way in map(describe, _ORDER[trouble]) if way.links]


def external(href: str, words: str) -> Markup:
    """A link to another site, which is not told where its reader comes from."""
    shown = escape(shown_values.visible(words))
    return Markup(f'<a href="{escape(href)}" rel="noreferrer"><bdi>{shown}</bdi></a>')  # noqa: S704 - escaped


def _fill(links: Iterable[NamedLink], name: HandleName) -> list[Markup]:
    return [external(link.fill(name.text), link.words) for link in links]


def _list_archives(texts: Catalogue, name: HandleName, targets: Sequence[str]) -> list[Markup]:
    shown = [target for target in targets if len(target) <= shown_values.MAX_CHARACTERS_SHOWN]
    words = texts.texts["ways.archive_page"]
    # Of more than one address, the host says which.
    labels = [words if len(shown) == 1 else f"{words} ({shown_values.host_of_address(target)})" for target in shown]
    found = [external(_ARCHIVE + target, label) for target, label in zip(shown, labels, strict=True)]
    if name.is_doi or name.is_short_doi:
        found.append(external(_ARCHIVE + to_url(name, _DOI_RESOLVER), texts.texts["ways.archive_doi"]))
    return found


def _ask(
    texts: Catalogue, contact: str | None, name: HandleName, trouble: Trouble, targets: Sequence[str]
) -> list[Markup]:
    link = _write_to(texts, contact, name, trouble, targets) or shown_values.contact_link(contact)
    return [link] if link is not None else []


def _report(
    texts: Catalogue, helpers: Helpers, name: HandleName, trouble: Trouble, targets: Sequence[str]
) -> list[Markup]:
    """The agency's form or mail; of a missing name, else the form on the page of doi.org, which has the name in it."""
    form = shown_values.web_address(helpers.contact)
    if form is not None:
        return [external(form, texts.texts["ways.form"].format(host=shown_values.host_of_address(form)))]
    link = _ask(texts, helpers.contact, name, trouble, targets)
    if not link and trouble == "missing" and name.is_doi:
        return [external(to_url(name, _DOI_RESOLVER), texts.texts["ways.doi_org_form"])]
    return link


def _write_to(
    texts: Catalogue, contact: str | None, name: HandleName, trouble: Trouble, targets: Sequence[str]
) -> Markup | None:
    """A mail about a name with its subject and text, None if the contact is not an e-mail address."""
    words = (contact or "").strip().removeprefix(_MAILTO)
    href = shown_values.address_href(words) if len(name.text) <= _MAX_MAILED else None
    if href is None or not href.startswith(_MAILTO):
        return None
    subject = texts.texts[f"ways.subject_{trouble}"].format(name=name.text)
    body = texts.texts[f"ways.mail_{trouble}"].format(name=name.text)
    text = "\r\n".join((body, *targets))
    return external(f"{href}?subject={component(subject)}&body={component(text)}", words)
