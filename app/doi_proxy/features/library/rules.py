"""The text of a file of library rules, read into rules and problems. docs/library-copy.md describes the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final, NoReturn

import ada_url

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_proxy.features.library import copy
from doi_proxy.features.library.copy import PLACEHOLDERS, LibraryService, host_of
from doi_proxy.resolver.target import web_target
from doi_proxy.system import toml_text

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
    if len(value) > 2_000:
        raise WrongService(f"{key} is longer than 2000 characters")
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


#: Tables of one file.
MAX_SERVICES: Final = 50
MAX_RULES: Final = 500
MAX_EXPECTATIONS: Final = 2_000
#: Networks of the whole file.
MAX_NETWORKS: Final = 1_000
#: Mistakes that are reported for one file.
MAX_PROBLEMS: Final = 100

_LIMITS: Final = {"service": MAX_SERVICES, "rule": MAX_RULES, "expect": MAX_EXPECTATIONS}
_KNOWN_TABLES: Final = "known; use [[service]], [[rule]] or [[expect]]"
_RULE_KEYS: Final = (
    "service", "prefixes", "agencies", "hosts", "exempt", "networks", "outside", "languages", "note",
)  # fmt: skip
_EXPECT_KEYS: Final = (
    "client", "doi", "target", "agency", "language", "choice", "service", "location", "note",
)  # fmt: skip
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
_HOST: Final = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_PREFIX: Final = re.compile(r"10(?:\.[0-9A-Za-z-]+)+")
_LANGUAGE: Final = re.compile(r"[a-z]{2,8}(?:-[a-z0-9]{1,8}){0,3}", re.IGNORECASE)
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the file says that becomes of one redirect: `service` or `location`, the other is None."""

    work: copy.LibraryWork
    reader: copy.ReaderFacts
    service: str | None
    location: str | None
    line: int


@dataclass(frozen=True, slots=True)
class RulesFile:
    """What was read of a file. The rules can be used if there are no problems."""

    rules: copy.LibraryRules
    expectations: tuple[Expectation, ...]
    problems: tuple[toml_text.FileProblem, ...]


@dataclass(slots=True)
class _Reading:
    """What has been read so far."""

    file: str
    problems: list[toml_text.FileProblem] = field(default_factory=list)
    exempt: frozenset[str] = frozenset()
    services: dict[str, copy.LibraryService] = field(default_factory=dict)
    rules: list[copy.Rule] = field(default_factory=list)
    expectations: list[Expectation] = field(default_factory=list)
    networks: int = 0


def read_rules(text: str, file: str) -> RulesFile:
    """Read the text of a file, and check its expectations. `file` is its name in problems."""
    reading = _Reading(file)
    blocks = list(toml_text.split_tables(text, "service|rule|expect"))
    # Rules and expectations name services, which may come after them.
    for name, read in (("", _read_top), ("service", _read_service), ("rule", _read_rule), ("expect", _read_expect)):
        chosen = [block for block in blocks if block.name == name]
        limit = _LIMITS.get(name, 1)
        for block in chosen[:limit]:
            if problem := toml_text.read_block(block, file, partial(read, reading)):
                reading.problems.append(problem)
        if len(chosen) > limit:
            reading.problems.append(
                toml_text.FileProblem(file, chosen[limit].line, 1, f"there are more than {limit} tables [[{name}]]")
            )
    rules = copy.LibraryRules(tuple(reading.services.values()), tuple(reading.rules), reading.exempt)
    if not reading.problems:
        reading.problems += find_failures(rules, reading.expectations, file)
    problems = sorted(reading.problems, key=lambda problem: (problem.line, problem.column))
    return RulesFile(rules, tuple(reading.expectations), tuple(problems[:MAX_PROBLEMS]))


def parse_rules(texts: Mapping[str, str]) -> tuple[copy.LibraryRules, tuple[toml_text.FileProblem, ...]]:
    """The rules of one file, or of none."""
    for file, text in texts.items():
        found = read_rules(text, file)
        return found.rules, found.problems
    return copy.LibraryRules(), ()


def find_failures(
    rules: copy.LibraryRules, expectations: Iterable[Expectation], file: str
) -> list[toml_text.FileProblem]:
    """A problem for each expectation that the rules do not meet."""
    problems = []
    for expectation in expectations:
        decision = copy.decide_copy(
            rules, rules.find_concerning(expectation.work, None), expectation.work, expectation.reader
        )
        service = decision.service.name if decision.service else copy.NO_SERVICE
        location = decision.url or expectation.work.target
        if expectation.service is not None and expectation.service != service:
            message = f"expected service {expectation.service!r}, but the rules lead to {service!r}"
        elif expectation.location is not None and expectation.location != location:
            message = f"expected location {expectation.location[:200]!r}, but the rules lead to {location[:200]!r}"
        else:
            continue
        problems.append(toml_text.FileProblem(file, expectation.line, 1, message))
    return problems


def _refuse(message: str, key: str | None = None) -> NoReturn:
    raise toml_text.WrongTable(message, key)


# --- The tables ---------------------------------------------------------------------------------------------------


def _read_top(reading: _Reading, block: toml_text.Block) -> None:
    table = toml_text.parse_toml(block.text)
    _check_keys(table, ("exempt",), "before the first table")
    reading.exempt = _read_hosts(table, "exempt")


def _read_service(reading: _Reading, block: toml_text.Block) -> None:
    table = toml_text.parse_table(block, _KNOWN_TABLES)
    kind = _read_text(table, "kind")
    if kind not in KINDS:
        _refuse(f"kind is {kind[:40]!r}; it is one of {', '.join(KINDS)}", "kind")
    _check_keys(table, ("name", "label", "kind", "hosts", "note", KINDS[kind].key), f"in a service of kind {kind}")
    name = _read_text(table, "name")
    if not _NAME.fullmatch(name) or len(name) > 40 or name == copy.NO_SERVICE:
        _refuse(
            f"name is {name[:60]!r}; write lower-case letters, digits and hyphens, and not {copy.NO_SERVICE!r}", "name"
        )
    label = _read_text(table, "label")
    if len(label) > 200:
        _refuse("label is longer than 200 characters", "label")
    try:
        service = build_service(name, label, kind, _read_text(table, KINDS[kind].key), _read_hosts(table, "hosts"))
    except WrongService as error:
        raise toml_text.WrongTable(str(error), KINDS[kind].key) from error
    if name in reading.services:
        _refuse(f"there is another service with the name {name!r}", "name")
    if any(other.base == service.base for other in reading.services.values()):
        _refuse("there is another service with the same URL; a reader's choice is kept as the URL", KINDS[kind].key)
    reading.services[name] = service


def _read_rule(reading: _Reading, block: toml_text.Block) -> None:
    table = toml_text.parse_table(block, _KNOWN_TABLES)
    _check_keys(table, _RULE_KEYS, "in a rule")
    name = _read_text(table, "service")
    if name != copy.NO_SERVICE and name not in reading.services:
        _refuse(f"service is {name[:60]!r}; it is the name of a [[service]], or {copy.NO_SERVICE!r}", "service")
    rule = copy.Rule(
        service=reading.services.get(name),
        line=block.line,
        prefixes=frozenset(_read_items(table, "prefixes", _PREFIX, "a prefix such as 10.1016")),
        agencies=frozenset(text.lower() for text in _read_list(table, "agencies")),
        hosts=_read_hosts(table, "hosts"),
        exempt=_read_hosts(table, "exempt"),
        networks=_read_networks(reading, table, "networks"),
        outside=_read_networks(reading, table, "outside"),
        languages=tuple(
            text.lower() for text in _read_items(table, "languages", _LANGUAGE, "a language tag such as de")
        ),
    )
    reading.rules.append(rule)


def _read_expect(reading: _Reading, block: toml_text.Block) -> None:
    table = toml_text.parse_table(block, _KNOWN_TABLES)
    _check_keys(table, _EXPECT_KEYS, "in an expectation")
    if ("service" in table) == ("location" in table):
        _refuse("an expectation has either service or location")
    choice, service = table.get("choice"), table.get("service")
    for key in ("choice", "service"):
        if key in table and table[key] != copy.NO_SERVICE and table[key] not in reading.services:
            _refuse(f"{key} is {str(table[key])[:60]!r}; it is the name of a [[service]], or {copy.NO_SERVICE!r}", key)
    language = _read_text(table, "language").lower() if "language" in table else ""
    reader = copy.ReaderFacts(
        address=_read_client(table),
        languages=(language,) if language else (),
        choice=reading.services[choice].base if choice in reading.services else choice,
    )
    location = _read_text(table, "location") if "location" in table else None
    reading.expectations.append(Expectation(_read_work(table), reader, service, location, block.line))


def _read_work(table: Mapping[str, Any]) -> copy.LibraryWork:
    try:
        name = HandleName(_read_text(table, "doi"))
    except InvalidName as error:
        raise toml_text.WrongTable(f"doi: {error.message}", "doi") from error
    target = web_target(_read_text(table, "target"))
    if target is None or copy.host_of(target) is None:
        _refuse("target is not a URL such as https://publisher.example.org/article/1", "target")
    return copy.LibraryWork(name, target, _read_text(table, "agency") if "agency" in table else None)


def _read_client(table: Mapping[str, Any]) -> IPv4Address | IPv6Address | None:
    if "client" not in table:
        return None
    try:
        return ip_address(_read_text(table, "client"))
    except ValueError as error:
        raise toml_text.WrongTable(f"client is not an address such as 192.0.2.7 ({error})", "client") from error


# --- The values ---------------------------------------------------------------------------------------------------


def _check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    known = tuple(known)
    for key in table:
        if key not in known:
            _refuse(f"unknown key {key[:60]!r}; {where} there can be {', '.join(known)}", key)


def _read_text(table: Mapping[str, Any], key: str) -> str:
    if key not in table:
        _refuse(f"{key} is missing")
    value = table[key]
    if not isinstance(value, str) or not value.strip() or _CONTROL.search(value):
        _refuse(f"{key} is not a text of one line", key)
    return value.strip()


def _read_list(table: Mapping[str, Any], key: str) -> list[str]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(element, str) for element in value):
        _refuse(f'{key} is not a list of texts, such as ["one", "two"]', key)
    if key in table and not value:
        # An empty condition would hold always, which is the opposite of what an empty list says.
        _refuse(f"{key} is empty; leave it out if it is not a condition", key)
    if len(value) > 5_000:
        _refuse(f"{key} has more than 5000 items", key)
    return [text.strip() for text in value]


def _read_items(table: Mapping[str, Any], key: str, pattern: re.Pattern[str], shape: str) -> list[str]:
    items = _read_list(table, key)
    for text in items:
        if not pattern.fullmatch(text):
            _refuse(f"{text[:60]!r} in {key} is not {shape}", key)
    return items


def _read_hosts(table: Mapping[str, Any], key: str) -> frozenset[str]:
    hosts = set[str]()
    for text in _read_list(table, key):
        host = ada_url.idna_to_ascii(text.encode()).decode().rstrip(".").lower() if len(text) <= 253 else ""
        if not _HOST.fullmatch(host):
            shape = "a host such as example.org, which includes the hosts below it"
            _refuse(f"{text[:60]!r} in {key} is not {shape}", key)
        hosts.add(host)
    return frozenset(hosts)


def _read_networks(reading: _Reading, table: Mapping[str, Any], key: str) -> tuple[copy.Network, ...]:
    networks: list[copy.Network] = []
    for text in _read_list(table, key):
        try:
            networks.append(ip_network(text))
        except ValueError as error:
            raise toml_text.WrongTable(
                f"{text[:60]!r} in {key} is not a network such as 192.0.2.0/24 ({error})", key
            ) from error
    reading.networks += len(networks)
    if reading.networks > MAX_NETWORKS:
        _refuse(f"the file has more than {MAX_NETWORKS} networks; merge them into larger ones", key)
    return tuple(networks)
