"""`doi-proxy doctor`: probes a front proxy from outside, and names the line of its configuration to change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote_to_bytes

from doi_proxy.features.setup.exposure import find_exposure, judge_health
from doi_proxy.features.setup.probe import FILL_BYTES, FILL_HEADER
from doi_proxy.features.setup.probes import ProbeAnswer, Prober
from doi_proxy.features.setup.remedies import Fault, front_kind, remedy_for
from doi_proxy.proxy_client.exchange import ProxyFailure
from doi_proxy.system.check import Finding

#: What is sent as a part of a path, by the fault if it does not arrive as it was sent.
_PATHS: Final[tuple[tuple[str, Fault], ...]] = (
    ("10.1234/a//b", "slashes"),
    ("10.1234/a///", "slashes"),
    ("10.1234%2Fa%2Fb%2fc", "decoding"),
    ("10.1234/a%252Fb%25", "decoding"),
    ("10.1234/a%3Fb%23c%20d%3B", "decoding"),
    ("10.1234/%C3%BC%E6%BC%A2", "decoding"),
    ("10.1234/a/../b/./c", "decoding"),
    ("10.1234/a;b=1;c", "characters"),
    ("10.1234/a+b(c)'d,e&f=g:h@i$j*k!l~", "characters"),
    ("10.1234/%3Ca%3E%22%5B%5D%7B%7D%7C%5C%5E%60", "decoding"),
    ("10.1234/a/", "characters"),
    ("10.1234/a.php", "characters"),
    ("10.1234/.htaccess", "characters"),
)
_QUERY: Final = "type=URL;urlappend=%3Fa%3D%252F%26b+c&ignored&empty="
#: A name may have 8,192 bytes, and each may be percent-encoded as three.
_LONG_PATH: Final = "10.1234/" + "%C3%BC" * 4_000
#: An address of a documentation network (RFC 5737), which no client has.
_FORGED_ADDRESS: Final = "203.0.113.9"
#: Characters of a path that a finding shows.
_LONGEST_SHOWN: Final = 200
#: A list of 1 MB that arrives in two seconds and has one name.
_NAME_LINE: Final = b"10.1234/doctor\n"
_COMMENT_LINE: Final = b"#" * 65_000 + b"\n"
_COMMENT_LINES: Final = 16
#: The proxy itself answers 429 to a client with too many lists.
_ANSWERED_LISTS: Final = (HTTPStatus.OK, HTTPStatus.TOO_MANY_REQUESTS)
_MEDIA_TYPE: Final = "application/vnd.citationstyles.csl+json"


@dataclass(frozen=True, slots=True)
class Examination:
    """The findings, and the kind of the front proxy that the remedies are for."""

    front: str
    findings: tuple[Finding, ...]


def examine(prober: Prober, front: str | None) -> Examination:
    """Send all probes. `front` is the kind of front proxy, None to read it from the Server header.

    Raises ProxyFailure.
    """
    first = prober.send("first")
    kind = front or front_kind(first.server)
    if not first.echo:
        return Examination(kind, (_no_proxy(first),))
    examiner = _Examiner(prober, kind)
    faults = tuple(finding for check in examiner.checks for finding in check())
    return Examination(kind, (*faults, *find_exposure(prober, kind)))


def examine_without_key(prober: Prober, front: str | None) -> Examination:
    """Send the probes that need no key. Raises ProxyFailure."""
    first = prober.send_plain("/healthz")
    kind = front or front_kind(first.server)
    if (finding := judge_health(first)) is not None:
        return Examination(kind, (finding,))
    unexamined = Finding(
        "note",
        "admin_token",
        "it is not set, so paths, headers and caches were not examined",
        "set DOI_PROXY_ADMIN_TOKEN_FILE to the same file for the proxy and for this command",
    )
    return Examination(kind, (*find_exposure(prober, kind), unexamined))


def _no_proxy(answer: ProbeAnswer) -> Finding:
    server = f" from {answer.server}" if answer.server else ""
    return Finding(
        "error",
        "probe first",
        f"no doi-proxy with this admin_token answered: HTTP {answer.status}{server}",
        "let the front proxy pass every path to doi-proxy, also /.well-known/doi-proxy/; set the same admin_token for "
        "the proxy and for this command; compare the clocks of both machines",
    )


class _Examiner:
    """The checks of one front proxy. Each yields what is wrong."""

    def __init__(self, prober: Prober, kind: str) -> None:
        self._prober = prober
        self._kind = kind
        self.checks: tuple[Callable[[], Iterator[Finding]], ...] = (
            self._paths,
            self._long_path,
            self._zero,
            self._query,
            self._scheme_and_host,
            self._client,
            self._accept,
            self._head,
            self._long_header,
            self._errors,
            self._redirect,
            self._keep_alive,
            self._caches,
            self._lists,
        )

    def _fault(self, probe: str, fault: Fault, problem: str, value: str = "") -> Finding:
        return Finding("error", f"probe {probe}", problem, remedy_for(fault, self._kind, value))

    def _paths(self) -> Iterator[Finding]:
        path = self._prober.path
        for rest, usual in _PATHS:
            answer = self._prober.send(rest)
            arrived = answer.echo.get("path")
            if arrived is None:
                problem = f"the path was not passed on: HTTP {answer.status}"
                yield self._fault(f"/{rest}", "encoded slashes" if "%2F" in rest else usual, problem)
            elif arrived != path + rest:
                problem = f"the path arrived as {arrived.removeprefix(path)[:_LONGEST_SHOWN]!r}"
                yield self._fault(f"/{rest}", _path_fault(path + rest, arrived, usual), problem)

    def _long_path(self) -> Iterator[Finding]:
        answer = self._prober.send(_LONG_PATH)
        if not answer.echo:
            yield self._fault("long name", "long request", f"a path of 24 kB was refused: HTTP {answer.status}")

    def _zero(self) -> Iterator[Finding]:
        answer = self._prober.send("10.1234/a%00b")
        # A front proxy may refuse it as doi-proxy does. It must not cut the name there.
        if answer.echo and not str(answer.echo["path"]).endswith("a%00b"):
            yield self._fault("/10.1234/a%00b", "decoding", "the path was cut or changed at %00")

    def _query(self) -> Iterator[Finding]:
        answer = self._prober.send(f"query?{_QUERY}")
        arrived = answer.echo.get("query")
        if arrived != _QUERY:
            yield self._fault("query", "query", f"the query arrived as {arrived!r}, HTTP {answer.status}")

    def _scheme_and_host(self) -> Iterator[Finding]:
        echo = self._prober.send("scheme").echo
        if not echo:
            return
        if echo["scheme"] != self._prober.scheme:
            fault: Fault = "trust" if echo["forwarded_proto"] == self._prober.scheme else "scheme"
            problem = f"the scheme arrived as {echo['scheme']}; the client used {self._prober.scheme}"
            yield self._fault("scheme", fault, problem, str(echo["client"]))
        if str(echo["host"]).lower() != self._prober.server.netloc.lower():
            yield self._fault(
                "host", "host", f"Host arrived as {echo['host']!r}, not as {self._prober.server.netloc!r}"
            )

    def _client(self) -> Iterator[Finding]:
        echo = self._prober.send("client").echo
        forged = self._prober.send("client", X_Forwarded_For=_FORGED_ADDRESS).echo
        if not echo or not forged:
            return
        if not echo["forwarded_for"]:
            problem = f"the front proxy does not send the client's address; {echo['client']} counts as the client"
            yield self._fault("client address", "client", problem)
        elif echo["client"] not in str(echo["forwarded_for"]):
            problem = f"X-Forwarded-For is ignored; {echo['client']} counts as the client"
            yield self._fault("client address", "trust", problem, str(echo["client"]))
        if forged["client"] == _FORGED_ADDRESS:
            yield self._fault("client address", "forgery", "a client can claim any address by X-Forwarded-For")

    def _accept(self) -> Iterator[Finding]:
        arrived = self._prober.send("accept", Accept=_MEDIA_TYPE).echo.get("accept")
        if arrived != _MEDIA_TYPE:
            yield self._fault("content negotiation", "accept", f"Accept arrived as {arrived!r}")

    def _head(self) -> Iterator[Finding]:
        answer = self._prober.send("head", method="HEAD")
        if answer.status != HTTPStatus.OK or answer.body:
            yield self._fault("HEAD", "head", f"HEAD is not answered as GET without a body: HTTP {answer.status}")

    def _long_header(self) -> Iterator[Finding]:
        answer = self._prober.send("header?fill")
        if len(answer.headers.get(FILL_HEADER, "")) != FILL_BYTES:
            problem = f"an answer with a header of {FILL_BYTES} bytes did not pass: HTTP {answer.status}"
            yield self._fault("long Location", "long header", problem)

    def _errors(self) -> Iterator[Finding]:
        for status in (404, 502):
            answer = self._prober.send(f"error?status={status}")
            if answer.status != status or not answer.echo:
                problem = f"the proxy's own answer with status {status} was replaced: HTTP {answer.status}"
                yield self._fault("error pages", "errors", problem)

    def _redirect(self) -> Iterator[Finding]:
        answer = self._prober.send("redirect?status=302")
        location = answer.headers.get("location", "")
        if not location.endswith("/10.1234//a%2Fb"):
            yield self._fault("redirect", "redirect", f"Location was rewritten to {location!r}, HTTP {answer.status}")

    def _keep_alive(self) -> Iterator[Finding]:
        answer = self._prober.send("keep-alive")
        if answer.headers.get("connection", "").lower() == "close":
            yield Finding("note", "probe keep-alive", "the front proxy closes the connection after each answer")

    def _caches(self) -> Iterator[Finding]:
        if self._is_same("vary?cache=vary", "vary?cache=vary", accepts=(_MEDIA_TYPE, "text/html")):
            problem = "a cache returned the answer for another Accept header, although Vary names it"
            yield self._fault("cache and Vary", "vary", problem)
        if self._is_same("private?cache=private", "private?cache=private"):
            yield self._fault("cache and private", "private", "a shared cache returned an answer that is private")
        if self._is_same("query?cache=public&n=1", "query?cache=public&n=2"):
            yield self._fault("cache and query", "cache key", "a cache returned the answer for another query")
        if self._is_same("p?cache=public&a%2Fb", "p?cache=public&a/b"):
            yield self._fault("cache and escapes", "cache key", "a cache returned the answer for another escaping")

    def _lists(self) -> Iterator[Finding]:
        try:
            answer = self._prober.send_list((_NAME_LINE, *[_COMMENT_LINE] * _COMMENT_LINES))
        except ProxyFailure as error:
            yield self._fault("list", "lists", f"a list of 1 MB did not pass: {error.message}")
            return
        if answer.status not in _ANSWERED_LISTS:
            yield self._fault("list", "lists", f"a list of 1 MB did not pass: HTTP {answer.status}")

    def _is_same(self, first: str, second: str, accepts: tuple[str, str] = ("*/*", "*/*")) -> bool:
        ids = [
            self._prober.send(rest, Accept=accept).echo.get("id")
            for rest, accept in zip((first, second), accepts, strict=True)
        ]
        return ids[0] is not None and ids[0] == ids[1]


def _path_fault(sent: str, arrived: str, usual: Fault) -> Fault:
    """Which fault changes a path in this way."""
    if "//" in sent and arrived == sent.replace("///", "/").replace("//", "/"):
        return "slashes"
    return "decoding" if unquote_to_bytes(arrived) == unquote_to_bytes(sent) else usual
