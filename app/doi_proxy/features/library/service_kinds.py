"""The kinds of services that library copy sends readers through, and the URLs that each of them understands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from doi_proxy.features.library.copy import PLACEHOLDERS, LibraryService, host_of
from doi_proxy.resolver.target_url import web_target

#: Characters of a service's URL or template.
MAX_URL_CHARACTERS: Final = 2_000
#: The scheme and host of a service, which do not depend on the work: a record must not choose the host.
_ORIGIN: Final = re.compile(r"https?://[A-Za-z0-9._-]+(?::[0-9]{1,5})?(?=[/?])")
_PRINTABLE: Final = re.compile(r"[!-~]+")
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_DOMAIN: Final = re.compile(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_NUMBER: Final = re.compile(r"[0-9]{1,12}")


class WrongService(Exception):
    """A service's URL, domain, number or template cannot be used."""


@dataclass(frozen=True, slots=True)
class ServiceKind:
    """A kind of service. `key` is what the file has for it, `pattern` the form of that."""

    key: str
    #: The template. `{}` stands for the value of `key`; `{?}` follows a URL, and begins or continues its query.
    template: str
    #: Whether hosts below its own are its own too. EZproxy rewrites www.example.org to www-example-org.HOST.
    rewrites_hosts: bool = False


KINDS: Final = {
    # OCLC, EZproxy starting point URL: the target is not encoded, so it comes last.
    "ezproxy": ServiceKind("url", "{}{?}url={target}", rewrites_hosts=True),
    # The same with the target encoded.
    "ezproxy-encoded": ServiceKind("url", "{}{?}qurl={target_encoded}", rewrites_hosts=True),
    # OpenAthens, redirector link.
    "openathens": ServiceKind("domain", "https://go.openathens.net/redirector/{}?url={target_encoded}"),
    # Third Iron, LibKey.io linking syntax.
    "libkey": ServiceKind("library", "https://libkey.io/libraries/{}/{doi}"),
    # OpenURL 0.1, section "Global identifiers"; the form that the DOI Handbook shows (section 3.8.4.1).
    "openurl-0.1": ServiceKind("url", "{}{?}id=doi:{doi}"),
    # ANSI/NISO Z39.88-2004, KEV format.
    "openurl-1.0": ServiceKind("url", "{}{?}url_ver=Z39.88-2004&rft_id=info:doi/{doi}"),
    "template": ServiceKind("template", "{}"),
}
_FORMS: Final = {
    "domain": (_DOMAIN, "a domain such as example.edu"),
    "library": (_NUMBER, "the number of a library"),
}


def build_service(name: str, label: str, kind: str, value: str, hosts: frozenset[str]) -> LibraryService:
    """A service from the value of its key. `hosts` are further hosts of its own. Raises WrongService."""
    key, template = KINDS[kind].key, KINDS[kind].template
    if len(value) > MAX_URL_CHARACTERS:
        raise WrongService(f"{key} is longer than {MAX_URL_CHARACTERS} characters")
    if key in _FORMS and not _FORMS[key][0].fullmatch(value):
        raise WrongService(f"{key} is {value[:60]!r}; write {_FORMS[key][1]}")
    if key == "url" and ("{" in value or "#" in value):
        raise WrongService("url is the address of the service alone, without placeholders and without a fragment")
    separator = "?" if "?" not in value else "" if value.endswith(("?", "&")) else "&"
    # The separator first: an institution's template can contain any text.
    template = template.replace("{?}", separator).replace("{}", value, 1)
    _check_template(key, template)
    host = host_of(_PLACEHOLDER.sub("x", template)) or ""
    rewriting = KINDS[kind].rewrites_hosts
    return LibraryService(
        name=name,
        label=label,
        kind=kind,
        base=value if key == "url" else template.partition("{")[0],
        template=template,
        hosts=frozenset({host}),
        proxy_hosts=hosts | {host} if rewriting else hosts,
    )


def _check_template(key: str, template: str) -> None:
    found = _PLACEHOLDER.findall(template)
    if unknown := next((placeholder for placeholder in found if placeholder not in PLACEHOLDERS), None):
        names = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
        raise WrongService(f"{key} has the placeholder {{{unknown[:40]}}}; there are {names}")
    fixed = _PLACEHOLDER.sub("", template)
    if not found or len(set(found)) < len(found) or "{" in fixed or "}" in fixed:
        raise WrongService(f"{key} must have at least one placeholder such as {{target}}, and each of them once")
    origin = _ORIGIN.match(template)
    filled = _PLACEHOLDER.sub("x", template)
    if origin is None or not _PRINTABLE.fullmatch(template) or host_of(filled) is None or web_target(filled) is None:
        raise WrongService(
            f"{key} is not a URL such as https://ezproxy.example.edu/login; write it in ASCII, with a path, and "
            "without user names, spaces and placeholders in its host"
        )
