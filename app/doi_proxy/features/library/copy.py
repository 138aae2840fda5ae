"""Library copy: which redirects go through a service of the institution, such as EZproxy ("appropriate copy").

A rule has conditions about the work (its prefix, agency and target) and about the reader (network and language). The
first rule whose conditions hold decides. Works that no rule concerns get the same redirect for every client.
"""

from __future__ import annotations

from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

import ada_url
import msgspec

from doi_names.name import HandleName, fold
from doi_names.presentation import component, encode, url_path
from doi_proxy.resolver.resolution import NO_FACTS, ClientFact
from doi_proxy.resolver.target import web_target

#: The value of a reader's choice that wants no service.
NO_SERVICE: Final = "none"
#: What a path may contain and a value in a query may not (RFC 3986, section 3.4; WHATWG URL, section 5.1).
_NOT_IN_VALUES: Final = str.maketrans({"&": "%26", "'": "%27", ";": "%3B", "=": "%3D"})

Network = IPv4Network | IPv6Network


class Outcome(Enum):
    """What library copy did with a redirect."""

    SENT = "sent"  # a rule sends it through its service
    CHOSEN = "chosen"  # it goes through the service that the reader chose
    OPTED_OUT = "opted_out"  # the reader wants no service
    LEFT_ALONE = "left_alone"  # a rule concerns the work, and none sends this reader through a service
    NOT_CONCERNED = "not_concerned"  # no rule concerns the work, for any reader


class LibraryWork(msgspec.Struct, frozen=True, gc=False):
    """What a name leads to: its target, in ASCII, and its registration agency, if that is known."""

    name: HandleName
    target: str
    agency: str | None = None


class ReaderFacts(msgspec.Struct, frozen=True, gc=False):
    """Facts about the client. `choice` is the base URL of a service, NO_SERVICE, or None without a choice."""

    address: IPv4Address | IPv6Address | None = None
    #: Language tags in lower case, the preferred one first.
    languages: tuple[str, ...] = ()
    choice: str | None = None


class OwnAddress(msgspec.Struct, frozen=True, gc=False):
    """Where this resolver is: its host, and its sub-path without a slash at the end."""

    host: str
    path: str


class LibraryService(msgspec.Struct, frozen=True):
    """A service of the institution. The template has the placeholders of PLACEHOLDERS."""

    name: str
    label: str
    kind: str
    #: What a reader's cookie holds: the URL up to what changes with the work.
    base: str
    template: str
    #: Its own hosts. Targets there are not sent through it again.
    hosts: frozenset[str]
    #: Hosts with all hosts below them, such as those that EZproxy rewrites.
    proxy_hosts: frozenset[str]

    def link(self, work: LibraryWork) -> str | None:
        """The URL of a work in this service. None if it has no such URL."""
        if not work.name.is_doi and "{doi" in self.template:
            return None
        # The target comes last: it can contain the text of a placeholder.
        path = url_path(work.name).translate(_NOT_IN_VALUES)
        filled = self.template.replace("{doi}", path).replace("{doi_encoded}", component(work.name))
        head, raw, tail = filled.partition("{target}")
        encoded = encode(work.target)
        head, tail = head.replace("{target_encoded}", encoded), tail.replace("{target_encoded}", encoded)
        return web_target(head + (work.target if raw else "") + tail)


#: What a template may contain in braces.
PLACEHOLDERS: Final = ("target", "target_encoded", "doi", "doi_encoded")


class Rule(msgspec.Struct, frozen=True):
    """Conditions, and the service that a redirect goes through if they hold. An empty condition holds always."""

    #: None leaves the redirect as it is.
    service: LibraryService | None
    line: int
    prefixes: frozenset[str]
    agencies: frozenset[str]
    hosts: frozenset[str]
    #: Hosts that the rule does not apply to.
    exempt: frozenset[str]
    networks: tuple[Network, ...]
    #: The rule applies to clients outside all of these networks.
    outside: tuple[Network, ...]
    languages: tuple[str, ...]

    def concerns(self, work: LibraryWork, prefixes: frozenset[str], hosts: frozenset[str]) -> bool:
        """Whether the conditions about the work hold. `prefixes` and `hosts` are of the work, with parents."""
        return (
            (not self.prefixes or not self.prefixes.isdisjoint(prefixes))
            and (not self.agencies or (work.agency or "").lower() in self.agencies)
            and (not self.hosts or not self.hosts.isdisjoint(hosts))
            and self.exempt.isdisjoint(hosts)
        )

    @property
    def facts(self) -> ClientFact:
        """The facts about the client that the rule reads."""
        address = ClientFact.ADDRESS if self.networks or self.outside else NO_FACTS
        return address | (ClientFact.LANGUAGE if self.languages else NO_FACTS)

    def matches(self, reader: ReaderFacts) -> bool:
        """Whether the conditions about the reader hold. Only the preferred language counts."""
        language = reader.languages[0] if reader.languages else ""
        return (
            (not self.networks or _is_in(reader.address, self.networks))
            and not _is_in(reader.address, self.outside)
            # Basic filtering (RFC 4647, section 3.3.1).
            and (not self.languages or any(language == tag or language.startswith(tag + "-") for tag in self.languages))
        )


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What becomes of a redirect, and the facts about the client that decided. `url` is None if it stays as it is."""

    outcome: Outcome
    facts: ClientFact = NO_FACTS
    service: LibraryService | None = None
    url: str | None = None
    #: The line of the rule that matches the reader.
    line: int | None = None


NOT_CONCERNED: Final = Decision(Outcome.NOT_CONCERNED)


class LibraryRules(msgspec.Struct, frozen=True):
    """The services and rules in force."""

    services: tuple[LibraryService, ...] = ()
    rules: tuple[Rule, ...] = ()
    #: Hosts that no rule applies to, such as open-access repositories.
    exempt: frozenset[str] = frozenset()

    def service_of(self, base: str | None) -> LibraryService | None:
        """The service with a base URL. None for any other text: only these may be chosen."""
        return next((service for service in self.services if service.base == base), None)

    def find_concerning(self, work: LibraryWork, own: OwnAddress | None) -> tuple[Rule, ...]:
        """The rules that can decide about a work, in order. Empty if it is left alone for every client."""
        # A service can open targets of these schemes.
        if not work.target.lower().startswith(("http://", "https://")):
            return ()
        if own is not None and _is_at(work.target, own):
            return ()
        host = host_of(work.target)
        labels = (host or "").split(".")
        hosts = frozenset(".".join(labels[start:]) for start in range(len(labels)))
        if host is None or not self.exempt.isdisjoint(hosts) or self._is_service(host, hosts):
            return ()
        # Elements of a prefix after ten are not compared.
        elements = fold(work.name.prefix).split(".", 10)[:10]
        prefixes = frozenset(".".join(elements[:count]) for count in range(1, len(elements) + 1))
        found = []
        for rule in self.rules:
            if rule.concerns(work, prefixes, hosts):
                found.append(rule)
                if not rule.facts:  # it decides for every client that comes this far
                    break
        return tuple(found) if any(rule.service for rule in found) else ()

    def _is_service(self, host: str, hosts: frozenset[str]) -> bool:
        return any(host in service.hosts or not service.proxy_hosts.isdisjoint(hosts) for service in self.services)


def decide_copy(rules: LibraryRules, concerning: tuple[Rule, ...], work: LibraryWork, reader: ReaderFacts) -> Decision:
    """Decide about a work, given the rules that concern it. A reader's choice wins over the conditions of the rules."""
    if not concerning:
        return NOT_CONCERNED
    # What the answer depends on wherever a rule can match.
    facts = ClientFact.COOKIE
    for concerning_rule in concerning:
        facts |= concerning_rule.facts
    if reader.choice == NO_SERVICE:
        return Decision(Outcome.OPTED_OUT, facts)
    chosen = rules.service_of(reader.choice)
    rule = next((concerning_rule for concerning_rule in concerning if concerning_rule.matches(reader)), None)
    service = chosen if chosen is not None or rule is None else rule.service
    url = None if service is None else service.link(work)
    line = None if rule is None else rule.line
    if url is None:
        return Decision(Outcome.LEFT_ALONE, facts, line=line)
    return Decision(Outcome.SENT if chosen is None else Outcome.CHOSEN, facts, service, url, line)


def host_of(url: str) -> str | None:
    """The host of a URL as browsers see it (WHATWG URL), in lower case. None if it has none."""
    try:
        return ada_url.URL(url).hostname.rstrip(".") or None
    except ValueError:
        return None


def _is_in(address: IPv4Address | IPv6Address | None, networks: tuple[Network, ...]) -> bool:
    return address is not None and any(
        address.version == network.version and address in network for network in networks
    )


def _is_at(url: str, own: OwnAddress) -> bool:
    """Whether a URL is one of this resolver."""
    try:
        parsed = ada_url.URL(url)
    except ValueError:
        return False
    return parsed.hostname == own.host and (parsed.pathname + "/").startswith(own.path + "/")
