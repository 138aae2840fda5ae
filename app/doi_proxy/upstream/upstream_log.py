"""The log lines about an upstream and the budget: one when a state begins, one when it ends.

A single query writes no line. The log is for operators: it may name the upstream's host and a library's error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from doi_proxy.errors import CouldNotVerify, UpstreamRefused, UpstreamUnreachable
from doi_proxy.system.check import Cause, Incidents

CORRECT_ADDRESS: Final = "correct the address, or allow this machine to reach it; HTTPS_PROXY names an egress proxy"
_EGRESS_LOGIN: Final = "set the user and the password of the egress proxy in HTTPS_PROXY or HTTP_PROXY"
_NO_ADDRESS: Final = "correct the address of the upstream, or check the DNS of this machine"
#: Words in the messages of OpenSSL, the resolver of names and the kernel, their sign, and what to do. The first counts.
_REMEDIES: Final = (
    ("answered connect with status 407", "", _EGRESS_LOGIN),
    ("answered connect with status", "", "look at the log of the egress proxy: it may not allow or reach the upstream"),
    (
        "certificate has expired",
        "certificate-expired",
        "check the clock of this machine; otherwise the upstream must renew its certificate",
    ),
    ("certificate is not yet valid", "certificate-early", "check the clock of this machine"),
    (
        "certificate is not valid for",
        "certificate-host",
        "correct the address of the upstream, or check the DNS of this machine: its certificate is for another host",
    ),
    (
        "certificate",
        "certificate",
        "set upstream_ca_bundle to the certificate authority of the upstream, or of the egress proxy",
    ),
    ("the egress proxy", "egress", "correct HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, or start the egress proxy"),
    ("wrong_version_number", "", "correct the address of the upstream: this port does not speak TLS"),
    ("connect call failed", "", CORRECT_ADDRESS),
    ("name resolution", "dns", "check the DNS of this machine"),
    ("name or service not known", "dns", _NO_ADDRESS),
    ("no address associated", "dns", _NO_ADDRESS),
)


#: By the HTTP status of an upstream that refuses queries. Its operator knows this service by `upstream_contact`.
_OF_STATUSES: Final = {
    401: "correct the user and the password in upstream_url: the upstream requests them",
    403: "the upstream may block this address: set upstream_contact, and write to its operator (doi.org: the DOI "
    "Foundation) with the address of this machine, the time and the User-Agent",
    407: _EGRESS_LOGIN,
    429: "lower upstream_rate, or agree with the operator of the upstream (doi.org: the DOI Foundation) on this rate",
}
_INTERCEPTED: Final = (
    "open the address of the upstream from this machine: a login portal or an intercepting proxy may answer in its "
    "place"
)
#: By the sign of the error.
_OF_SIGNS: Final = {"page": _INTERCEPTED, "redirect": _INTERCEPTED}
#: By the token of the error.
_OF_TOKENS: Final = {
    "budget-spent": "limit the clients that need most (client_rate), or agree with the upstream on a higher "
    "upstream_rate",
    "places-full": "raise upstream_max_concurrency: queries a second = places / seconds of an answer",
    "upstream-slow": "wait, or find out what is slow between here and the upstream; a higher upstream_max_concurrency "
    "lets more queries wait for it",
    "resources-short": "raise the limit, or lower max_connections and cache_memory_bytes",
    "upstream-bad-answer": _INTERCEPTED,
    "upstream-refused": "wait: the upstream itself fails or is overloaded",
    "upstream-timeout": "wait, or find out what hangs between here and the upstream: curl from this machine shows it",
    "upstream-unreachable": "wait, or look at the network and the firewall; HTTPS_PROXY names an egress proxy",
}


def find_remedy(detail: str) -> str:
    """What to do about a failure with this text. Empty if no remedy is known."""
    text = detail.lower()
    return next((remedy for words, _, remedy in _REMEDIES if words in text), "")


def sign_of(error: CouldNotVerify) -> str:
    """What narrows the token of an error down: its sign, `dns` or `certificate`. Empty if nothing does."""
    text = error.detail.lower()
    return error.sign or next((sign for words, sign, _ in _REMEDIES if words in text), "")


def remedy_of(error: CouldNotVerify) -> str:
    """What to do about an error. Empty if no remedy is known."""
    if isinstance(error, UpstreamRefused) and error.upstream_status in _OF_STATUSES:
        return _OF_STATUSES[error.upstream_status]
    return find_remedy(error.detail) or _OF_SIGNS.get(error.sign) or _OF_TOKENS.get(error.token, "")


log = logging.getLogger(__name__)

#: After so many seconds of failures without an answer, an outage is logged even if the breaker is closed.
OUTAGE_SECONDS: Final = 60.0
#: From so many names in a row without a usable answer on, the line is a warning.
MANY_UNREADABLE: Final = 3
#: The signs of an answer that a login portal or an intercepting proxy may have given: HTML, or another site.
PORTAL_SIGNS: Final = frozenset({"page", "redirect"})


class UpstreamLog:
    """The transitions of one upstream, which `label` names. `clock` is monotonic, in seconds.

    With `shows_names`, lines at level debug may have the name.
    """

    def __init__(self, label: str, clock: Callable[[], float], *, shows_names: bool) -> None:
        #: The upstream by its number and its host.
        self.label = label
        self._clock = clock
        self._shows_names = shows_names
        #: When the first failure since the last answer happened.
        self.first_failure: float | None = None
        self.outages, self.pauses = Incidents("outage"), Incidents("pause")
        #: When the outage under way began, and when each of its causes did.
        self._down_since = 0.0
        self._causes = dict[Cause, float]()
        #: When the last failure happened, and its cause.
        self.last_failure: tuple[float, Cause] | None = None
        #: Whether the next answer is the first one, or the first after a failure.
        self.awaits_answer = True
        #: Whether it has answered, or its first failure is logged.
        self._is_known = False
        #: The failures in a row without a connection.
        self._unreachable = 0
        #: The names without a usable answer since the last line about them, and in a row.
        self._unreadable = self._unreadable_in_row = 0
        self._unreadable_since: float | None = None

    @property
    def is_down(self) -> bool:
        """Whether an outage was logged that is not over."""
        return self.outages.under_way is not None

    @property
    def down_seconds(self) -> float:
        """How long the outage has lasted. 0.0 without one."""
        return self._clock() - self._down_since if self.is_down else 0.0

    @property
    def seems_portal(self) -> bool:
        """Whether an outage goes on because a login portal seems to answer in place of the upstream."""
        return self.outages.under_way is not None and self.outages.under_way.cause.sign in PORTAL_SIGNS

    def failure(self, error: CouldNotVerify, *, is_open: bool) -> None:
        """The upstream itself failed. `is_open` is whether the breaker is open afterwards."""
        now = self._clock()
        self.awaits_answer, self.last_failure = True, (now, _cause_of(error))
        if self.first_failure is None:
            self.first_failure = now
        seconds = now - self.first_failure
        self._unreachable = self._unreachable + 1 if isinstance(error, UpstreamUnreachable) else 0
        # Two connections that failed are an outage before the breaker opens. Before the first answer, one is enough.
        is_outage = is_open or self._unreachable > self._is_known or seconds >= OUTAGE_SECONDS
        if is_outage and not self.is_down:
            self._is_known = True
            self._down_since = self.first_failure
            self._causes = {_cause_of(error): now}
            self.outages.begin(self.first_failure, _cause_of(error))
            since = f"no answer for {seconds:.0f} s, last " if seconds >= 1.0 else ""
            self._write("is down: %s%s", since, _describe(error))
        elif self._is_another_cause(error, now):
            self._causes[_cause_of(error)] = now
            self.outages.begin(now, _cause_of(error))
            self._write("is still down, for another reason after %.0f s: %s", self.down_seconds, _describe(error))
        elif not self._is_known:
            self._is_known = True
            self._write("has not answered yet: %s", _describe(error))
        elif is_open:
            log.debug("%s is still down after %.0f s: %s", self.label, seconds, _describe(error))

    def _is_another_cause(self, error: CouldNotVerify, now: float) -> bool:
        """Whether a failure gives the outage under way another cause."""
        outage, cause = self.outages.under_way, _cause_of(error)
        if outage is None or outage.cause == cause:
            return False
        # Seconds in which an outage does not return to a cause that it had before: an upstream that fails in two ways
        # in turn would write a line for each failure.
        return cause not in self._causes or now - max(self._causes.values()) >= 300.0

    def answer(self) -> None:
        """The upstream answered."""
        if self.is_down:
            self._write("is up again after %.0f s", self.down_seconds)
            self.outages.end(self._clock())
        self.first_failure, self._unreachable, self._unreadable_in_row = None, 0, 0
        self._is_known, self.awaits_answer = True, False

    def pause(self, seconds: float, error: CouldNotVerify) -> None:
        """The upstream gets no queries for so many seconds."""
        if self.pauses.under_way is None:
            self.pauses.begin(self._clock(), _cause_of(error))
            self._write("gets no queries for %.0f s: %s", seconds, _describe(error))

    def pause_end(self) -> None:
        """The pause is over."""
        if (pause := self.pauses.under_way) is not None:
            self._write("gets queries again after %.0f s", self._clock() - pause.began)
            self.pauses.end(self._clock())

    def _write(self, text: str, *values: object) -> None:
        log.warning(f"%s {text}", self.label, *values)

    def unreadable(self, name: str, error: CouldNotVerify) -> None:
        """The upstream refused one name, or its answer about that name could not be read."""
        if self._shows_names:
            log.debug("%s about %r: %s", self.label, name[:100], _describe(error))
        now, self.awaits_answer = self._clock(), True
        self.last_failure = now, _cause_of(error)
        self._unreadable += 1
        self._unreadable_in_row += 1
        # Seconds between two lines about answers that cannot be read.
        is_due = self._unreadable_since is None or now - self._unreadable_since >= 60.0
        if is_due or self._unreadable_in_row == MANY_UNREADABLE:
            level = logging.INFO if self._unreadable_in_row < MANY_UNREADABLE else logging.WARNING
            text = "%s, names without a usable answer: %s, last %s"
            log.log(level, text, self.label, self._unreadable, _describe(error))
            self._unreadable, self._unreadable_since = 0, now


class BudgetLog:
    """Whether the queries of people are sent, and what they lack. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.refusals = Incidents("refusal")
        self._since = self._last_refusal = 0.0

    def refusal(self, error: CouldNotVerify, numbers: str) -> None:
        """A person's query was not sent. Its first cause, and each further one, is logged with the numbers."""
        self._last_refusal, under_way = self._clock(), self.refusals.under_way
        if under_way is not None and under_way.cause == _cause_of(error):
            return
        self.refusals.begin(self._last_refusal, _cause_of(error))
        if under_way is None:
            self._since = self._last_refusal
        begins = "are refused" if under_way is None else "are refused for another reason"
        self._write("%s: %s: %s; %s", begins, error.token, numbers, remedy_of(error))

    def notice_quiet(self) -> None:
        """End the refusal if none has happened for a while. Called while no query of a person is refused."""
        now = self._clock()
        # Queries are admitted again if no person's query was refused for so many seconds.
        if self.refusals.under_way is not None and now - self._last_refusal >= 10.0:
            self._write("are sent again after %.0f s", now - self._since)
            self.refusals.end(now)

    def _write(self, text: str, *values: object) -> None:
        log.warning(f"queries about new names {text}", *values)


def _cause_of(error: CouldNotVerify) -> Cause:
    return Cause(error.token, sign_of(error))


def _describe(error: CouldNotVerify) -> str:
    # The text of a library or an upstream may have line breaks. repr() shows them as escapes.
    detail, remedy = f" {error.detail!r}" if error.detail else "", remedy_of(error)
    text = f"{error.token}: {error.message}{detail}"
    return f"{text.rstrip('.')}; {remedy}" if remedy else text
