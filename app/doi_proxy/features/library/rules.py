"""The text of a file of library rules, read into rules and problems. docs/library-copy.md describes the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
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
from doi_proxy.system.toml_text import (
    Block,
    FileProblem,
    WrongTable,
    check_keys,
    parse_table,
    parse_toml,
    read_block,
    read_string,
    split_tables,
)

#: The scheme and host of a service, which do not depend on the work: a record must not choose the host.
_ORIGIN: Final = re.compile(r"https?://[A-Za-z0-9._-]+(?::[0-9]{1,5})?(?=[/?])")
_PRINTABLE: Final = re.compile(r"[!-~]+")
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_DOMAIN: Final = re.compile(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_NUMBER: Final = re.compile(r"[0-9]{1,12}")


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
    """A service from the value of its key. `hosts` are further hosts of its own. Raises WrongTable."""
    key, template = KINDS[kind].key, KINDS[kind].template
    if len(value) > 2_000:
        _refuse(f"{key} is longer than 2000 characters", key)
    if key in _FORMS and not _FORMS[key][0].fullmatch(value):
        _refuse(f"{key} is {value[:60]!r}; write {_FORMS[key][1]}", key)
    if key == "url" and ("{" in value or "#" in value):
        _refuse("url is the address of the service alone, without placeholders and without a fragment", key)
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
        _refuse(f"{key} has the placeholder {{{unknown[:40]}}}; there are {names}", key)
    fixed = _PLACEHOLDER.sub("", template)
    if not found or len(set(found)) < len(found) or "{" in fixed or "}" in fixed:
        _refuse(f"{key} must have at least one placeholder such as {{target}}, and each of them once", key)
    origin = _ORIGIN.match(template)
    filled = _PLACEHOLDER.sub("x", template)
    if origin is None or not _PRINTABLE.fullmatch(template) or host_of(filled) is None or web_target(filled) is None:
        _refuse(
            f"{key} is not a URL such as https://ezproxy.example.edu/login; write it in ASCII, with a path, and "
            "without user names, spaces and placeholders in its host",
            key,
        )


#: Networks of the whole file.
MAX_NETWORKS: Final = 1_000
#: Tables of the whole file.
LIMITS: Final = {"": 1, "service": 50, "rule": 500, "expect": 2_000}
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
_ITEM: Final = re.compile(".*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the file says that becomes of one redirect: `service` or `location`, the other is None."""

    work: copy.LibraryWork
    reader: copy.ReaderFacts
    service: str | None
    location: str | None
    block: Block


@dataclass(slots=True)
class _Reading:
    """What has been read so far."""

    exempt: frozenset[str] = frozenset()
    services: dict[str, copy.LibraryService] = field(default_factory=dict)
    rules: list[copy.Rule] = field(default_factory=list)
    expectations: list[Expectation] = field(default_factory=list)
    networks: int = 0


def read_rules(texts: Mapping[str, str]) -> tuple[copy.LibraryRules, list[FileProblem]]:
    """Read the text of each file by its name, and check its expectations. The rules are good without a problem."""
    reading, problems = _Reading(), list[FileProblem]()
    blocks = [block for file, text in texts.items() for block in split_tables(text, file, "service|rule|expect")]
    # Rules and expectations name services, which may come after them.
    for name, read in (("", _read_top), ("service", _read_service), ("rule", _read_rule), ("expect", _read_expect)):
        chosen, limit = [block for block in blocks if block.name == name], LIMITS[name]
        found = [read_block(block, partial(read, reading)) for block in chosen[:limit]]
        problems += [problem for problem in found if problem]
        if len(chosen) > limit:
            problems.append(_problem(chosen[limit], f"there are more than {limit} tables [[{name}]]"))
    rules = copy.LibraryRules(tuple(reading.services.values()), tuple(reading.rules), reading.exempt)
    if not problems:
        problems += _find_failures(rules, reading.expectations)
    return rules, sorted(problems, key=lambda problem: (problem.line, problem.column))


def _find_failures(rules: copy.LibraryRules, expectations: Iterable[Expectation]) -> Iterator[FileProblem]:
    """A problem for each expectation that the rules do not meet."""
    for expectation in expectations:
        work, wanted = expectation.work, expectation.service
        decision = copy.decide_copy(rules, rules.find_concerning(work, None), work, expectation.reader)
        service = decision.service.name if decision.service else copy.NO_SERVICE
        location = decision.url or work.target
        if wanted is not None and wanted != service:
            message = f"expected service {wanted!r}, but the rules lead to {service!r}"
        elif expectation.location is not None and expectation.location != location:
            message = f"expected location {expectation.location[:200]!r}, but the rules lead to {location[:200]!r}"
        else:
            continue
        yield _problem(expectation.block, message)


def _problem(block: Block, message: str) -> FileProblem:
    return FileProblem(block.file, block.line, 1, message)


def _refuse(message: str, key: str | None = None) -> NoReturn:
    raise WrongTable(message, key)


# --- The tables ---------------------------------------------------------------------------------------------------


def _read_top(reading: _Reading, block: Block) -> None:
    table = parse_toml(block.text)
    check_keys(table, ("exempt",), "before the first table there can be")
    reading.exempt = _read_hosts(table, "exempt")


def _read_service(reading: _Reading, block: Block) -> None:
    table = parse_table(block, _KNOWN_TABLES)
    kind = read_string(table, "kind")
    if kind not in KINDS:
        _refuse(f"kind is {kind[:40]!r}; it is one of {', '.join(KINDS)}", "kind")
    check_keys(table, ("name", "label", "kind", "hosts", "note", KINDS[kind].key), f"a service of kind {kind} has")
    name = read_string(table, "name")
    if not _NAME.fullmatch(name) or len(name) > 40 or name == copy.NO_SERVICE:
        _refuse(
            f"name is {name[:60]!r}; write lower-case letters, digits and hyphens, and not {copy.NO_SERVICE!r}", "name"
        )
    label = read_string(table, "label").strip()
    if len(label) > 200:
        _refuse("label is longer than 200 characters", "label")
    service = build_service(name, label, kind, read_string(table, KINDS[kind].key), _read_hosts(table, "hosts"))
    if name in reading.services:
        _refuse(f"there is another service with the name {name!r}", "name")
    if any(other.base == service.base for other in reading.services.values()):
        _refuse("there is another service with the same URL; a reader's choice is kept as the URL", KINDS[kind].key)
    reading.services[name] = service


def _read_rule(reading: _Reading, block: Block) -> None:
    table = parse_table(block, _KNOWN_TABLES)
    check_keys(table, _RULE_KEYS, "a rule has")
    name = read_string(table, "service")
    if name != copy.NO_SERVICE and name not in reading.services:
        _refuse(f"service is {name[:60]!r}; it is the name of a [[service]], or {copy.NO_SERVICE!r}", "service")
    rule = copy.Rule(
        service=reading.services.get(name),
        line=block.line,
        prefixes=frozenset(_read_list(table, "prefixes", _PREFIX, "a prefix such as 10.1016")),
        agencies=frozenset(text.lower() for text in _read_list(table, "agencies")),
        hosts=_read_hosts(table, "hosts"),
        exempt=_read_hosts(table, "exempt"),
        networks=_read_networks(reading, table, "networks"),
        outside=_read_networks(reading, table, "outside"),
        languages=tuple(
            text.lower() for text in _read_list(table, "languages", _LANGUAGE, "a language tag such as de")
        ),
    )
    reading.rules.append(rule)


def _read_expect(reading: _Reading, block: Block) -> None:
    table = parse_table(block, _KNOWN_TABLES)
    check_keys(table, _EXPECT_KEYS, "an expectation has")
    if ("service" in table) == ("location" in table):
        _refuse("an expectation has either service or location")
    choice, service = table.get("choice"), table.get("service")
    for key in ("choice", "service"):
        if key in table and table[key] != copy.NO_SERVICE and table[key] not in reading.services:
            _refuse(f"{key} is {str(table[key])[:60]!r}; it is the name of a [[service]], or {copy.NO_SERVICE!r}", key)
    language = read_string(table, "language").lower() if "language" in table else ""
    reader = copy.ReaderFacts(
        address=_read_client(table),
        languages=(language,) if language else (),
        choice=reading.services[choice].base if choice in reading.services else choice,
    )
    location = read_string(table, "location") if "location" in table else None
    reading.expectations.append(Expectation(_read_work(table), reader, service, location, block))


def _read_work(table: Mapping[str, Any]) -> copy.LibraryWork:
    try:
        name = HandleName(read_string(table, "doi"))
    except InvalidName as error:
        raise WrongTable(f"doi: {error.message}", "doi") from error
    target = web_target(read_string(table, "target"))
    if target is None or copy.host_of(target) is None:
        _refuse("target is not a URL such as https://publisher.example.org/article/1", "target")
    return copy.LibraryWork(name, target, read_string(table, "agency") if "agency" in table else None)


def _read_client(table: Mapping[str, Any]) -> IPv4Address | IPv6Address | None:
    if "client" not in table:
        return None
    try:
        return ip_address(read_string(table, "client"))
    except ValueError as error:
        raise WrongTable(f"client is not an address such as 192.0.2.7 ({error})", "client") from error


# --- The values ---------------------------------------------------------------------------------------------------


def _read_list(
    table: Mapping[str, Any], key: str, pattern: re.Pattern[str] = _ITEM, shape: str = "a text of one line"
) -> list[str]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(element, str) for element in value):
        _refuse(f'{key} is not a list of texts, such as ["one", "two"]', key)
    if key in table and not value:
        # An empty condition would hold always, which is the opposite of what an empty list says.
        _refuse(f"{key} is empty; leave it out if it is not a condition", key)
    if len(value) > 5_000:
        _refuse(f"{key} has more than 5000 items", key)
    items = [text.strip() for text in value]
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
            raise WrongTable(f"{text[:60]!r} in {key} is not a network such as 192.0.2.0/24 ({error})", key) from error
    reading.networks += len(networks)
    if reading.networks > MAX_NETWORKS:
        _refuse(f"the file has more than {MAX_NETWORKS} networks; merge them into larger ones", key)
    return tuple(networks)
