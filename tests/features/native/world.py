"""A handle system in memory: services that answer questions, and count them. Each is known by its serial number."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from msgspec import structs

from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.native.root_file import RootFile, ServiceRecords
from doi_proxy.resolver.resolution import TtlPolicy
from handle_protocol.directory import Directory
from handle_protocol.errors import HandleProtocolError
from handle_protocol.referral import HandleService, Lookups, Question
from handle_protocol.wire.message import AnswerText, Envelope, Header, OpCode, Response, ResponseStatus, Values
from handle_protocol.wire.site_value import Interface, Server, ServiceSite, Value, encode_site
from tests.clock import Clock
from tests.features.native.clients import LIMITS as USUAL_LIMITS
from tests.features.native.clients import Reports, Tokens, breaker

#: The serial number of the root.
ROOT = 1
ROOT_RECORD: Final = (ROOT, b"0.NA/0.NA")
POLICY: Final = TtlPolicy(floor=0.0, ceiling=86_400.0, negative=60.0, grace=30 * 86_400.0)
LIMITS: Final = replace(USUAL_LIMITS, queries=10, services=3)


def site(serial: int) -> ServiceSite:
    """A site with one server, in the network of the tests' documentation."""
    return ServiceSite(serial, (Server(1, bytes(12) + bytes((93, 184, 216, serial)), b"", (Interface(3, 1, 2641),)),))


def site_value(serial: int, kind: bytes = b"HS_SITE") -> Value:
    """A value that names the site with this serial number."""
    return Value(1, kind, encode_site(site(serial)))


def serv_value(handle: bytes, kind: bytes = b"HS_SERV") -> Value:
    """A value that names a service handle."""
    return Value(2, kind, handle)


@dataclass(frozen=True)
class Referral:
    """An answer that refers the client onwards."""

    values: Sequence[Value]


#: A record, a referral, or the code of another answer.
Content = Sequence[Value] | Referral | int


@dataclass
class World:
    """What each service answers about each handle. An unknown handle is answered 100."""

    services: dict[int, dict[bytes, Content]]
    #: The questions in order: the service's serial number and the handle.
    asked: list[tuple[int, bytes]] = field(default_factory=list)
    questions: list[tuple[HandleService, Question]] = field(default_factory=list)
    #: The serial numbers that services announce in answers, if they are not those of their sites.
    announced: dict[int, int] = field(default_factory=dict)
    failure: HandleProtocolError | None = None
    #: Failures of single services, by serial number.
    failures: dict[int, HandleProtocolError] = field(default_factory=dict)
    #: Services that never answer, by serial number.
    silent: set[int] = field(default_factory=set)
    #: Questions that are never answered: the service's serial number and the handle.
    unanswered: set[tuple[int, bytes]] = field(default_factory=set)
    #: Answers wait for it.
    gate: asyncio.Event | None = None

    async def __call__(self, service: HandleService, question: Question) -> Response:
        """The answer of the service's first site."""
        serial = service.sites[0].serial
        self.asked.append((serial, question.handle))
        self.questions.append((service, question))
        if self.gate is not None:
            await self.gate.wait()
        if serial in self.silent or (serial, question.handle) in self.unanswered:
            await asyncio.Event().wait()
        if (failure := self.failure or self.failures.get(serial)) is not None:
            raise failure
        header = Header(OpCode.RESOLUTION, 1, site_serial=self.announced.get(serial, serial))
        match self.services[serial].get(question.handle, 100):
            case int(code):
                return Response(Envelope(7), structs.replace(header, response_code=code), AnswerText(b""))
            case Referral(values):
                header = structs.replace(header, response_code=ResponseStatus.PREFIX_REFERRAL)
                return Response(Envelope(7), header, Values(b"", tuple(values)))
            case values:
                return Response(Envelope(7), header, Values(question.handle, tuple(values)))


class Bench:
    """A directory over a world, with what it reports. `cache` keeps its lookups, on the same clock."""

    def __init__(
        self,
        records: dict[int, dict[bytes, Content]],
        *,
        is_verified: bool = True,
        cache: TieredStore | None = None,
        clock: Clock | None = None,
        are_signed: bool = False,
        **limits: Any,
    ) -> None:
        self.clock = clock or Clock(1_000_000.0)
        self.world = World(records)
        self.reports = Reports()
        #: The tokens of the budget for lookups.
        self.tokens = Tokens()
        bounds, stored = replace(LIMITS, **limits), None
        if cache is not None:
            stored = ServiceRecords(cache, POLICY, bounds)
        self.directory = Directory(
            RootFile(None, HandleService((site(ROOT),), is_verified)),
            Lookups(self.world, self.tokens.spend, bounds, self.clock, self.reports, breaker(), are_signed),
            stored,
        )

    async def codes(self, *handles: bytes, **more: Any) -> list[int | None]:
        """The response codes of the answers; None for a prefix that does not exist."""
        answers = [await self.directory.resolve(Question(handle, **more)) for handle in handles]
        return [answer.code if answer else None for answer in answers]

    @property
    def asked(self) -> list[tuple[int, bytes]]:
        """The questions but for the refresh of the root."""
        return [one for one in self.world.asked if one != ROOT_RECORD]
