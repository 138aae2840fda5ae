"""`doi-proxy doctor`: probes a front proxy from outside, and names the line of its configuration to change."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, Final, Literal
from urllib.parse import unquote_to_bytes

from doi_proxy.features.setup.probe import FILL_BYTES, FILL_HEADER, PROBE_PATH, TOKEN_HEADER
from doi_proxy.proxy_client import Exchange, ProxyFailure, ProxyServer
from doi_proxy.system.check import Finding

Fault = Literal[
    "slashes",
    "decoding",
    "encoded slashes",
    "characters",
    "query",
    "long request",
    "long header",
    "scheme",
    "host",
    "client",
    "trust",
    "forgery",
    "accept",
    "head",
    "errors",
    "redirect",
    "vary",
    "private",
    "cache key",
    "admin",
    "status",
    "lists",
]
KINDS: Final = ("nginx", "apache", "caddy", "haproxy")

_NGINX: Final[Mapping[Fault, str]] = {
    "slashes": "`merge_slashes off;` in the server block and in the default server of the same port, and "
    "`proxy_pass http://doi_proxy;` with nothing after the name",
    "decoding": "`proxy_pass http://doi_proxy;` with nothing after the name, not even a slash, and without rewrite",
    "encoded slashes": "`proxy_pass http://doi_proxy;` with nothing after the name",
    "characters": "`location ^~ /`, or no `location ~ \\.php$` and no rewrite beside it",
    "query": "`proxy_pass http://doi_proxy;` without $uri or $args in it",
    "long request": "`large_client_header_buffers 4 64k;` in the server block and in the default server",
    "long header": "`proxy_buffer_size 64k; proxy_buffers 8 64k; proxy_busy_buffers_size 128k;`",
    "scheme": "`proxy_set_header X-Forwarded-Proto $scheme;`",
    "host": "`proxy_set_header Host $http_host;`",
    "client": "`proxy_set_header X-Forwarded-For $remote_addr;`",
    "forgery": "`proxy_set_header X-Forwarded-For $remote_addr;` instead of $proxy_add_x_forwarded_for",
    "accept": "remove `proxy_set_header Accept`",
    "head": "remove `proxy_method` and `limit_except`",
    "errors": "`proxy_intercept_errors off;`",
    "redirect": "`proxy_redirect off;`",
    "vary": "remove Vary from `proxy_ignore_headers` and from `proxy_hide_header`",
    "private": "remove Cache-Control from `proxy_ignore_headers`, and `proxy_cache_valid`",
    "cache key": "`proxy_cache_key $scheme$http_host$request_uri;`",
    "admin": "`allow 127.0.0.1; allow ::1; deny all;` in `location /admin/`",
    "status": "`allow` lines for your networks and `deny all;` in `location = /status`",
    "lists": "the lines of doi-proxy-pass-lists.conf, such as `client_max_body_size 0;`, in `location = /api/resolve`",
}
_APACHE: Final[Mapping[Fault, str]] = {
    "slashes": "`MergeSlashes Off` in the VirtualHost, and `nocanon` at the end of ProxyPass",
    "decoding": '`ProxyPass "/" "balancer://doi-proxy/" nocanon`, and no RewriteRule with [P]',
    "encoded slashes": "`AllowEncodedSlashes NoDecode` in the VirtualHost",
    "characters": '`ProxyPass "/" "balancer://doi-proxy/" nocanon` before all other ProxyPass and Alias lines',
    "query": "no RewriteRule with [P] and [QSA]",
    "long request": "`LimitRequestLine 65536` and `LimitRequestFieldSize 65536`",
    "long header": "`responsefieldsize=65536` on each BalancerMember",
    "scheme": "`RequestHeader set X-Forwarded-Proto expr=%{REQUEST_SCHEME}`",
    "host": "`ProxyPreserveHost On`",
    "client": "`ProxyAddHeaders On`",
    "forgery": "`RequestHeader unset X-Forwarded-For`",
    "accept": "remove `RequestHeader ... Accept`",
    "head": "remove the Limit or LimitExcept section",
    "errors": "`ProxyErrorOverride Off`",
    "redirect": "remove `ProxyPassReverse`",
    "vary": "remove `Header unset Vary` and `CacheIgnoreHeaders Vary`",
    "private": "`CacheStorePrivate Off`",
    "cache key": "`CacheIgnoreQueryString Off`, and no CacheIgnoreURLSessionIdentifiers",
    "admin": '`<Location "/admin/">` with `Require local`',
    "status": '`<Location "/status">` with `Require ip` for your networks',
    "lists": '`ProxyPass "/api/resolve"` to a balancer with a long `timeout`, and no LimitRequestBody below 1 GB',
}
_CADDY: Final[Mapping[Fault, str]] = {
    "slashes": "remove `rewrite`, `uri` and `handle_path` before `reverse_proxy`",
    "decoding": "remove `rewrite`, `uri` and `handle_path` before `reverse_proxy`",
    "encoded slashes": "remove `rewrite`, `uri` and `handle_path` before `reverse_proxy`",
    "characters": "remove `php_fastcgi`, `file_server` and `rewrite` from this site",
    "query": "remove `rewrite` and `uri query`",
    "long request": "remove `max_header_size` from the server options",
    "long header": "remove `max_response_header` from the transport",
    "scheme": "remove `header_up X-Forwarded-Proto`",
    "host": "remove `header_up Host`",
    "client": "remove `header_up -X-Forwarded-For`",
    "forgery": "remove `trusted_proxies`, unless another proxy stands before Caddy",
    "accept": "remove `header_up Accept`",
    "head": "remove `method` before `reverse_proxy`",
    "errors": "remove `handle_response` and `handle_errors`",
    "redirect": "remove `header_down Location`",
    "vary": "let the cache plugin obey Vary, or remove it",
    "private": "let the cache plugin obey Cache-Control, or remove it",
    "cache key": "put the whole URI into the key of the cache plugin, or remove it",
    "admin": "`path /admin/*` and `not remote_ip 127.0.0.1 ::1` in a matcher, and `respond` with 403 for it",
    "status": "`path /status` and `not remote_ip` with your networks in a matcher, and `respond` with 403 for it",
    "lists": "no `request_body max_size`, and a `reverse_proxy /api/resolve` with a long `response_header_timeout`",
}
_HAPROXY: Final[Mapping[Fault, str]] = {
    "slashes": "remove `http-request normalize-uri path-merge-slashes`",
    "decoding": "remove `http-request normalize-uri` and `http-request set-path`",
    "encoded slashes": "remove `http-request normalize-uri` and `http-request deny` for %2F",
    "characters": "remove `http-request set-path` and `http-request deny` rules for paths",
    "query": "remove `http-request set-query` and `normalize-uri query-sort-by-name`",
    "long request": "`tune.bufsize 65536` in the global section",
    "long header": "`tune.bufsize 65536` in the global section",
    "scheme": "`http-request set-header X-Forwarded-Proto %[ssl_fc,iif(https,http)]`",
    "host": "remove `http-request set-header Host`",
    "client": "`http-request set-header X-Forwarded-For %[src]`",
    "forgery": "`http-request set-header X-Forwarded-For %[src]` instead of `option forwardfor`",
    "accept": "remove `http-request set-header Accept`",
    "head": "remove `http-request set-method`",
    "errors": "remove `http-response return` and `errorfile` rules for the proxy's own statuses",
    "redirect": "remove `http-response replace-header Location`",
    "vary": "`process-vary on` in the cache section",
    "private": "remove `http-response set-header Cache-Control`",
    "cache key": "remove the cache, or give it the whole URI as its key",
    "admin": "`http-request deny if { path_beg /admin/ } !{ src 127.0.0.1 }`",
    "status": "`http-request deny if { path /status } !{ src 127.0.0.1 }` with your networks",
    "lists": "no rule on the length of bodies for /api/resolve, and a long `timeout server` for it",
}
_LINES: Final = {"nginx": _NGINX, "apache": _APACHE, "caddy": _CADDY, "haproxy": _HAPROXY}


def front_kind(server: str) -> str:
    """The kind of front proxy by its Server header, "" if it is unknown."""
    lower = server.lower()
    if "openresty" in lower:
        return "nginx"
    return next((kind for kind in ("nginx", "apache", "caddy") if kind in lower), "")


def remedy_for(fault: Fault, kind: str, value: str = "") -> str:
    """What to change. `value` is the address of a front proxy that is not trusted."""
    if fault == "trust":
        return f"set trusted_proxies of doi-proxy to {value}, if that is the front proxy's address"
    if kind in _LINES:
        example = "" if kind == "haproxy" else f" (`doi-proxy gen-config {kind}` prints a whole file)"
        return f"{kind}: {_LINES[kind][fault]}{example}"
    return "; ".join(f"{name}: {lines[fault]}" for name, lines in _LINES.items())


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """The answer to one probe. `echo` is empty if it does not come from the proxy."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    echo: Mapping[str, Any] = field(default_factory=dict)


class Prober:
    """Sends probes to one public URL, each over its own connection.

    Every run has its own paths, so no earlier answer is in a cache.
    """

    def __init__(self, server: ProxyServer, token: str) -> None:
        self.server = server
        self._token = token
        #: Whether the last connection came from a loopback address.
        self.is_on_this_machine = False
        #: The path of all probes, without the sub-path.
        self.path = PROBE_PATH.decode() + secrets.token_hex(16) + "/"

    def send(self, rest: str, method: str = "GET", **headers: str) -> ProbeAnswer:
        """Send `rest`, a raw path and query, below the path of probes. Raises ProxyFailure."""
        fields = {TOKEN_HEADER: self._token, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return self._exchange(method, self.path + rest, fields)

    def send_plain(self, target: str) -> ProbeAnswer:
        """GET a path of the proxy as any client would. Raises ProxyFailure."""
        return self._exchange("GET", target, {"Accept": "application/json"})

    def send_list(self, pieces: Sequence[bytes]) -> ProbeAnswer:
        """POST a list of names in pieces, with a pause before each. Raises ProxyFailure."""
        fields = {"Content-Type": "text/plain", "Content-Length": str(sum(map(len, pieces)))}
        # Lists of names. A cached answer causes no query.
        return self._exchange("POST", "/api/resolve?only=cached", fields, _pace(pieces))

    def _exchange(
        self, method: str, target: str, fields: Mapping[str, str], content: Iterable[bytes] | None = None
    ) -> ProbeAnswer:
        # Seconds that one probe waits for its answer.
        with Exchange(self.server, 20.0) as exchange:
            status = exchange.send(method, target, fields, content)
            self.is_on_this_machine = ip_address(exchange.local_address).is_loopback
            # The largest body that is read, in bytes: an echo of the longest path.
            body = exchange.read(1_000_000)
            headers = {name.lower(): value for name, value in exchange.headers.items()}
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        echo = document if isinstance(document, dict) and "id" in document else {}
        return ProbeAnswer(status, headers, body, echo)


def _pace(pieces: Sequence[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        # Seconds before each piece of a list.
        time.sleep(0.1)
        yield piece


def find_exposure(prober: Prober, kind: str) -> Iterator[Finding]:
    """Paths of operators that this client reaches. `kind` is that of the front proxy. Raises ProxyFailure.

    A client on this machine is not a stranger: the generated configurations let it pass.
    """
    admin = prober.send_plain("/admin/settings")
    if prober.is_on_this_machine:
        yield Finding(
            "note",
            "probe /admin/",
            "this machine reached the front proxy by a loopback address, so it cannot see what strangers reach",
            "run this command on another machine too",
        )
        return
    yield from judge_admin(admin, kind)
    yield from judge_status(prober.send_plain("/status?format=json"), kind)


def judge_admin(answer: ProbeAnswer, kind: str) -> Iterator[Finding]:
    """A finding if an answer without a token comes from the admin API."""
    # The challenge of the admin API (RFC 6750, section 3).
    if answer.status == HTTPStatus.UNAUTHORIZED and "doi-proxy admin" in answer.headers.get("www-authenticate", ""):
        problem = "strangers reach the admin API through the front proxy, and only the token protects it"
        yield Finding("warning", "probe /admin/", problem, remedy_for("admin", kind))


def judge_status(answer: ProbeAnswer, kind: str) -> Iterator[Finding]:
    """A finding if an answer is the status of the service."""
    try:
        document = json.loads(answer.body)
    except ValueError:
        return
    if answer.status == HTTPStatus.OK and isinstance(document, dict) and "hit_share" in document:
        problem = "strangers see /status through the front proxy"
        remedy = remedy_for("status", kind)
        yield Finding(
            "warning", "probe /status", problem, f"{remedy}; nothing, if status_networks has everyone on purpose"
        )


def judge_health(answer: ProbeAnswer) -> Finding | None:
    """A finding if `/healthz` is not answered by a doi-proxy."""
    if answer.status == HTTPStatus.OK and b'"status"' in answer.body:
        return None
    return Finding(
        "error",
        "probe /healthz",
        f"no doi-proxy answered: HTTP {answer.status}",
        "let the front proxy pass every path to doi-proxy",
    )


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
    server = first.headers.get("server", "")
    kind = front or front_kind(server)
    if not first.echo:
        unknown = Finding(
            "error",
            "probe first",
            f"no doi-proxy with this admin_token answered: HTTP {first.status}{f' from {server}' if server else ''}",
            "let the front proxy pass every path to doi-proxy, also /.well-known/doi-proxy/; set the same admin_token "
            "for the proxy and for this command; compare the clocks of both machines",
        )
        return Examination(kind, (unknown,))
    examiner = _Examiner(prober, kind)
    checks = examiner.paths, examiner.headers, examiner.answers, examiner.caches, examiner.lists
    return Examination(kind, (*(found for check in checks for found in check()), *find_exposure(prober, kind)))


def examine_without_key(prober: Prober, front: str | None) -> Examination:
    """Send the probes that need no key. Raises ProxyFailure."""
    first = prober.send_plain("/healthz")
    kind = front or front_kind(first.headers.get("server", ""))
    if (finding := judge_health(first)) is not None:
        return Examination(kind, (finding,))
    unexamined = Finding(
        "note",
        "admin_token",
        "it is not set, so paths, headers and caches were not examined",
        "set DOI_PROXY_ADMIN_TOKEN_FILE to the same file for the proxy and for this command",
    )
    return Examination(kind, (*find_exposure(prober, kind), unexamined))


class _Examiner:
    """The checks of one front proxy. Each yields what is wrong."""

    def __init__(self, prober: Prober, kind: str) -> None:
        self._prober = prober
        self._send = prober.send
        self._kind = kind

    def _fault(self, probe: str, fault: Fault, problem: str, value: str = "") -> Finding:
        return Finding("error", f"probe {probe}", problem, remedy_for(fault, self._kind, value))

    def paths(self) -> Iterator[Finding]:
        """Whether paths and queries arrive as they were sent."""
        path = self._prober.path
        for rest, usual in _PATHS:
            answer = self._send(rest)
            arrived = answer.echo.get("path")
            if arrived is None:
                problem = f"the path was not passed on: HTTP {answer.status}"
                yield self._fault(f"/{rest}", "encoded slashes" if "%2F" in rest else usual, problem)
            elif arrived != path + rest:
                # Characters of a path that a finding shows.
                problem = f"the path arrived as {arrived.removeprefix(path)[:200]!r}"
                yield self._fault(f"/{rest}", _path_fault(path + rest, arrived, usual), problem)
        # A name may have 8,192 bytes, and each may be percent-encoded as three.
        answer = self._send("10.1234/" + "%C3%BC" * 4_000)
        if not answer.echo:
            yield self._fault("long name", "long request", f"a path of 24 kB was refused: HTTP {answer.status}")
        # A front proxy may refuse it as doi-proxy does. It must not cut the name there.
        answer = self._send("10.1234/a%00b")
        if answer.echo and not str(answer.echo["path"]).endswith("a%00b"):
            yield self._fault("/10.1234/a%00b", "decoding", "the path was cut or changed at %00")
        query = "type=URL;urlappend=%3Fa%3D%252F%26b+c&ignored&empty="
        answer = self._send(f"query?{query}")
        arrived = answer.echo.get("query")
        if arrived != query:
            yield self._fault("query", "query", f"the query arrived as {arrived!r}, HTTP {answer.status}")

    def headers(self) -> Iterator[Finding]:
        """Whether scheme, host, client and Accept arrive, and no address that a client forged."""
        scheme, host = "https" if self._prober.server.is_tls else "http", self._prober.server.netloc
        if echo := self._send("scheme").echo:
            if echo["scheme"] != scheme:
                fault: Fault = "trust" if echo["forwarded_proto"] == scheme else "scheme"
                problem = f"the scheme arrived as {echo['scheme']}; the client used {scheme}"
                yield self._fault("scheme", fault, problem, str(echo["client"]))
            if str(echo["host"]).lower() != host.lower():
                yield self._fault("host", "host", f"Host arrived as {echo['host']!r}, not as {host!r}")
        # An address of a documentation network (RFC 5737), which no client has.
        forged_address = "203.0.113.9"
        echo = self._send("client").echo
        forged = self._send("client", X_Forwarded_For=forged_address).echo
        if echo and forged:
            if not echo["forwarded_for"]:
                problem = f"the front proxy does not send the client's address; {echo['client']} counts as the client"
                yield self._fault("client address", "client", problem)
            elif echo["client"] not in str(echo["forwarded_for"]):
                problem = f"X-Forwarded-For is ignored; {echo['client']} counts as the client"
                yield self._fault("client address", "trust", problem, str(echo["client"]))
            if forged["client"] == forged_address:
                yield self._fault("client address", "forgery", "a client can claim any address by X-Forwarded-For")
        arrived = self._send("accept", Accept=_MEDIA_TYPE).echo.get("accept")
        if arrived != _MEDIA_TYPE:
            yield self._fault("content negotiation", "accept", f"Accept arrived as {arrived!r}")

    def answers(self) -> Iterator[Finding]:
        """Whether answers come back as doi-proxy sent them."""
        answer = self._send("head", method="HEAD")
        if answer.status != HTTPStatus.OK or answer.body:
            yield self._fault("HEAD", "head", f"HEAD is not answered as GET without a body: HTTP {answer.status}")
        answer = self._send("header?fill")
        if len(answer.headers.get(FILL_HEADER, "")) != FILL_BYTES:
            problem = f"an answer with a header of {FILL_BYTES} bytes did not pass: HTTP {answer.status}"
            yield self._fault("long Location", "long header", problem)
        for status in (404, 502):
            answer = self._send(f"error?status={status}")
            if answer.status != status or not answer.echo:
                problem = f"the proxy's own answer with status {status} was replaced: HTTP {answer.status}"
                yield self._fault("error pages", "errors", problem)
        answer = self._send("redirect?status=302")
        location = answer.headers.get("location", "")
        if not location.endswith("/10.1234//a%2Fb"):
            yield self._fault("redirect", "redirect", f"Location was rewritten to {location!r}, HTTP {answer.status}")
        if self._send("keep-alive").headers.get("connection", "").lower() == "close":
            yield Finding("note", "probe keep-alive", "the front proxy closes the connection after each answer")

    def caches(self) -> Iterator[Finding]:
        """Whether a cache on the way returns the answer for another request."""
        vary = "vary?cache=vary"
        if self._is_same(vary, vary, accepts=(_MEDIA_TYPE, "text/html")):
            problem = "a cache returned the answer for another Accept header, although Vary names it"
            yield self._fault("cache and Vary", "vary", problem)
        if self._is_same("private?cache=private", "private?cache=private"):
            yield self._fault("cache and private", "private", "a shared cache returned an answer that is private")
        if self._is_same("query?cache=public&n=1", "query?cache=public&n=2"):
            yield self._fault("cache and query", "cache key", "a cache returned the answer for another query")
        if self._is_same("p?cache=public&a%2Fb", "p?cache=public&a/b"):
            yield self._fault("cache and escapes", "cache key", "a cache returned the answer for another escaping")

    def _is_same(self, first: str, second: str, accepts: tuple[str, str] = ("*/*", "*/*")) -> bool:
        ids = [
            self._send(rest, Accept=accept).echo.get("id")
            for rest, accept in zip((first, second), accepts, strict=True)
        ]
        return ids[0] is not None and ids[0] == ids[1]

    def lists(self) -> Iterator[Finding]:
        """Whether a long list passes that arrives slowly."""
        try:
            # A list of 1 MB that arrives in two seconds and has one name.
            answer = self._prober.send_list((b"10.1234/doctor\n", *[b"#" * 65_000 + b"\n"] * 16))
        except ProxyFailure as error:
            yield self._fault("list", "lists", f"a list of 1 MB did not pass: {error.message}")
            return
        # The proxy itself answers 429 to a client with too many lists.
        if answer.status not in (HTTPStatus.OK, HTTPStatus.TOO_MANY_REQUESTS):
            yield self._fault("list", "lists", f"a list of 1 MB did not pass: HTTP {answer.status}")


def _path_fault(sent: str, arrived: str, usual: Fault) -> Fault:
    """Which fault changes a path in this way."""
    if "//" in sent and arrived == sent.replace("///", "/").replace("//", "/"):
        return "slashes"
    return "decoding" if unquote_to_bytes(arrived) == unquote_to_bytes(sent) else usual
