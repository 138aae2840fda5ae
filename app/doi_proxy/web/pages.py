"""The pages for people, each a whole HTML document in UTF-8. Their words are in `texts/`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from markupsafe import Markup, escape

from doi_names.name import HandleName
from doi_names.presentation import component, to_url
from doi_proxy.resolver.prefix_chain import ReportContact
from doi_proxy.web import shown_values
from doi_proxy.web.languages import CORE, Catalogue
from doi_proxy.web.look import Brand, Branding, NamedLink, StaticFile, open_look, our_branding
from doi_proxy.web.shown_values import readable, show_name, title_text

#: Lists the copies of an address that the archive has.
_ARCHIVE: Final = "https://web.archive.org/web/*/"
_DOI_RESOLVER: Final = "https://doi.org"
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
    # A longer name is not put into a mail, in characters: mail programs do not take such links.
    href = shown_values.address_href(words) if len(name.text) <= 500 else None
    if href is None or not href.startswith(_MAILTO):
        return None
    subject = texts.texts[f"ways.subject_{trouble}"].format(name=name.text)
    body = texts.texts[f"ways.mail_{trouble}"].format(name=name.text)
    text = "\r\n".join((body, *targets))
    return external(f"{href}?subject={component(subject)}&body={component(text)}", words)


#: The values of `title_key` that `Pages.error` accepts, and the texts below these titles.
ERROR_TEXTS: Final = {
    "error_not_here": "error.no_file",
    "error_no_file": "error.no_file",
    "error_method": "error.method",
    "error_too_large": "error.too_large",
    "error_too_long": "error.too_long",
    "error_too_many": "error.too_many",
    "error_denied": "error.denied",
    "error_request": "error.request",
    "error_internal": "error.no_reason",
}


@dataclass(frozen=True, slots=True)
class Link:
    """Where a page's links lead. `base` is this resolver's own path or URL without a slash at its end, such as "".

    `query` follows the links to names, such as "?format=bibtex".
    """

    base: str
    query: str = ""


@dataclass(frozen=True, slots=True)
class PageLink:
    """A link of every page to one of a feature, while `is_shown` says so. `key` is that of its text.

    In the place "record", it is on pages about a record, and `path` goes before the path of its name. In the place
    "first", it is the first of the header, also where an institution has links of its own there.

    `cookie_key` is the text about the cookie that the page sets, `home_key` a sentence about it on the home page; "" if
    there is none.
    """

    place: Literal["first", "header", "footer", "record"]
    path: str
    key: str
    is_shown: Callable[[], bool] = lambda: True
    cookie_key: str = ""
    home_key: str = ""


class Pages:
    """Every page of this resolver. Methods return UTF-8. A `language` that is not one of `languages` is the default.

    `base_url_hint` is the address that the home page shows to programs if a link's base is not a URL. `of_features`
    are the packages of features with texts and templates.
    """

    def __init__(
        self,
        *,
        base_url_hint: str,
        product_version: str,
        of_features: Sequence[str] = (),
    ) -> None:
        #: The packages whose folders `texts` the pages read.
        self.packages = (CORE, *of_features)
        self._address = base_url_hint.rstrip("/")
        self._version = product_version
        self.rebrand(our_branding())
        #: The links of features.
        self.links: list[PageLink] = []

    def rebrand(self, branding: Branding) -> None:
        """Change the face of the pages. Raises ConfigurationError, and then changes nothing."""
        self._look = open_look(branding, self.packages, version=self._version)

    async def prepare(self) -> None:
        """Compile the templates in a thread. Otherwise, the first page of each kind takes the event loop 40 ms.

        The thread holds the interpreter's lock, so it rests after each template as long as that took.
        """
        now = asyncio.get_running_loop().time
        templates = self._look.templates
        for name in templates.list_templates(extensions=["html"]):
            began = now()
            await asyncio.to_thread(templates.get_template, name)
            await asyncio.sleep(now() - began)

    def texts(self, language: str) -> Catalogue:
        """The texts of a language, with those of the institution."""
        return self._look.texts(language)

    @property
    def languages(self) -> tuple[str, ...]:
        """The tags of the languages, the default first."""
        return tuple(self._look.catalogues)

    @property
    def files(self) -> Mapping[str, StaticFile]:
        """The static files by their paths."""
        return self._look.files

    def failure_reason(self, language: str, token: str) -> str:
        """The sentence for people about a failure or a wrong name. `token` is that of its class."""
        texts = self._look.texts(language).texts
        return texts.get(f"failure.{token}") or texts["failure.not-asked"]

    def home(self, link: Link, language: str) -> bytes:
        """The form, and what this resolver is."""
        address = link.base if "://" in link.base else self._address
        return self.render("home", link, language, "home.title", indexed=True, address=address)

    def helpers(self, contact: ReportContact) -> Helpers:
        """Who can help: the operators of this resolver, and the agency of a name."""
        return Helpers(self._look.contact, contact.agency, contact.contact)

    def list_ways(
        self, language: str, name: HandleName, trouble: Trouble, helpers: Helpers | None = None, *targets: str
    ) -> list[Way]:
        """What a reader can do about a name; see doi_proxy.web.pages. `targets` are the addresses that it led to."""
        look = self._look
        helpers = helpers or Helpers(self._look.contact)
        texts = look.texts(language)
        return list_ways(texts, look.brands[texts.language], helpers, name, trouble, targets)

    def error(
        self, link: Link, language: str, *, title_key: str, reason: str = "", typed: str = "", retry_after: int = 0
    ) -> bytes:
        """A failure without a page of its own. `title_key` is one of ERROR_TEXTS, `reason` is in English, or ""."""
        facts = {
            "text": ERROR_TEXTS[title_key],
            "reason": reason,
            "typed": readable(typed[: shown_values.MAX_CHARACTERS_SHOWN]),
        }
        wait = choose_wait(retry_after) if retry_after else None
        return self.render("error", link, language, f"title.{title_key}", None, **facts, wait=wait)

    def render(
        self, template: str, link: Link, language: str, key: str, name: HandleName | None = None, **facts: Any
    ) -> bytes:
        """Render a template with a title, whose `key` is completed by the name's kind if it ends with an underscore."""
        look = self._look
        texts = look.texts(language)
        context = {"t": texts, "base": link.base, "query": link.query, "indexed": False}
        context |= {"links": [named_link for named_link in self.links if named_link.is_shown()], **facts}
        if name is None:
            context["title"] = context["heading"] = texts(key)
        else:
            context["name"] = shown = show_name(name)
            context["heading"] = texts(key + shown.kind if key.endswith("_") else key)
            context["title"] = texts.texts["site.title"].format(heading=context["heading"], name=title_text(name.text))
        return look.render(template, context).encode("utf-8", "replace")


def choose_wait(seconds: int) -> tuple[str, int]:
    # From here on the time to wait is shown in minutes.
    if seconds >= 120:
        return "retry_minutes", -(-seconds // 60)
    return ("retry_seconds", seconds) if seconds > 1 else ("retry_soon", seconds)
