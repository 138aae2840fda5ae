"""The base classes of all errors, and the errors of the core. A feature has its own in feature.py or errors.py.

The docstring of a class is its default message. `status` is the HTTP status that `web` answers with; packages below
`web` do not use HTTP exceptions. `token` is the stable name of the class for programs. docs/errors.md lists them.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import ClassVar, Final, Self

from doi_names.errors import InvalidName, NameTooLong
from handle_protocol import errors as protocol


class DoiProxyError(Exception):
    """The request failed."""

    status: int = 500
    #: The error as one token of a structured header (RFC 9651, section 3.3.4): in problem types, headers and metrics.
    token: str = "internal-error"
    #: The title of the problem type of a feature's error (RFC 9457, section 3.1.3). web/problem.py has the core's.
    title: ClassVar[str] = ""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])

    @property
    def message(self) -> str:
        """What is wrong, where, and what to do."""
        return str(self.args[0])


class InvalidRequest(DoiProxyError):
    """The request cannot be answered as it was sent."""

    status = 400
    token = "invalid-request"


class UnreadableList(InvalidRequest):
    """The list of names cannot be read."""

    token = "unreadable-list"
    title = "The list of names cannot be read"


class UnreadableName(InvalidRequest):
    """The text of the request cannot be a DOI name."""

    token = "invalid-name"

    @classmethod
    def of(cls, error: InvalidName) -> UnreadableName:
        """The error of a request whose name the codec refuses, with the message and the token of the codec."""
        found = UnreadableName(error.message)
        found.token = error.token
        found.status = HTTPStatus.REQUEST_URI_TOO_LONG if isinstance(error, NameTooLong) else HTTPStatus.BAD_REQUEST
        return found


class NoDOIInOpenURL(UnreadableName):
    """This OpenURL does not name a DOI; send id=doi:10.1000/182 or rft_id=info:doi/10.1000/182."""

    token = "no-doi-in-openurl"


class InvalidParameter(InvalidRequest):
    """A query parameter has an invalid value."""

    token = "invalid-parameter"


class RequestTooLarge(InvalidRequest):
    """The request is larger than this resolver accepts."""

    status = 413
    token = "request-too-large"


class UnsupportedBody(InvalidRequest):
    """The body is not of a media type that this path reads."""

    status = 415
    token = "unsupported-media-type"


class ClientDenied(InvalidRequest):
    """This resolver does not serve the network of this client."""

    status = 403
    token = "client-denied"


class RequestLoop(InvalidRequest):
    """This resolver sent this request to itself; set upstream.url to an address that does not lead back here."""

    # RFC 5842, section 7.2.
    status = 508
    token = "request-loop"


@dataclass(frozen=True, slots=True)
class Quota:
    """The limit of one client: `amount` requests or queries in `window` seconds."""

    #: The name of the limit in RateLimit headers, and in metrics as the reason of a refusal.
    name: str
    amount: int
    window: int


class TooManyRequests(InvalidRequest):
    """This client sent too many requests; try again later."""

    status = 429
    token = "too-many-requests"

    def __init__(self, message: str | None = None, *, quota: Quota, retry_after: float) -> None:
        super().__init__(message)
        self.quota = quota
        #: Seconds to wait before the next attempt.
        self.retry_after = retry_after


class RateExceeded(TooManyRequests):
    """This client sent requests faster than this resolver allows; wait, then send them at a lower rate."""

    token = "rate-exceeded"


class NotAnswerable(DoiProxyError):
    """The handle system has no answer for this name."""

    status = 404
    token = "not-answerable"


class AliasChainTooLong(NotAnswerable):
    """The aliases of this name form a loop or a chain that is too long."""

    token = "alias-chain-too-long"

    def __init__(self, message: str | None = None, *, reached: str) -> None:
        super().__init__(message)
        #: The alias at which the resolver stopped.
        self.reached = reached


class PrefixInactive(NotAnswerable):
    """The prefix of this name is out of use."""

    token = "prefix-inactive"

    def __init__(self, message: str | None = None, *, status_message: str | None, contact: str | None) -> None:
        super().__init__(message)
        #: The status message and the contact in the prefix record.
        self.status_message = status_message
        self.contact = contact


class CouldNotVerify(DoiProxyError):
    """The upstream was not queried, so it is unknown whether this name is registered."""

    status = 502
    #: The error type of RFC 9209, section 2.3, for the `Proxy-Status` header.
    proxy_error: ClassVar[str] = "proxy_internal_error"
    token = "not-asked"

    def __init__(self, message: str | None = None, *, retry_after: float | None = None, detail: str = "") -> None:
        super().__init__(message)
        #: Seconds to wait before the next attempt, if known.
        self.retry_after = retry_after
        #: The text of a library, a host name: only for the log, never for a client.
        self.detail = detail

    @property
    def concerns_name(self) -> bool:
        """Whether the failure concerns one name only. The upstream may work for all other names."""
        return False

    def without_traceback(self) -> Self:
        """A copy to keep. The frames of a traceback hold the request, its reply and the failure before this one."""
        kept = type(self).__new__(type(self))
        kept.args = self.args
        kept.__dict__.update(self.__dict__)
        return kept

    @property
    def sign(self) -> str:
        """What narrows the token down, for operators: `page`, `redirect`, or the HTTP status of a refusal."""
        return ""


class UpstreamTimeout(CouldNotVerify):
    """The upstream did not answer in time."""

    status = 504
    proxy_error = "http_response_timeout"
    token = "upstream-timeout"


class UpstreamUnreachable(CouldNotVerify):
    """The upstream could not be reached."""

    proxy_error = "destination_unavailable"
    token = "upstream-unreachable"


class UpstreamRefused(CouldNotVerify):
    """The upstream refused or failed to answer."""

    proxy_error = "http_protocol_error"
    token = "upstream-refused"

    def __init__(
        self,
        message: str | None = None,
        *,
        upstream_status: int | None = None,
        response_code: int | None = None,
        retry_after: float | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(message, retry_after=retry_after, detail=detail)
        #: The HTTP status that the upstream sent, if it sent one.
        self.upstream_status = upstream_status
        #: The response code of the handle API, if the upstream spoke that.
        self.response_code = response_code

    @property
    def requests_pause(self) -> bool:
        """Whether Retry-After holds for the whole upstream: 429 (RFC 6585, 4) and 503 (RFC 9110, 15.6.4)."""
        return self.upstream_status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)

    @property
    def concerns_name(self) -> bool:
        """See CouldNotVerify. A working upstream reports the failure of a handle server as a response code."""
        if self.requests_pause:
            return False
        status = self.upstream_status or HTTPStatus.INTERNAL_SERVER_ERROR
        return status < HTTPStatus.INTERNAL_SERVER_ERROR or self.response_code is not None

    @property
    def sign(self) -> str:
        """See CouldNotVerify."""
        if self.upstream_status is None:
            return ""
        is_redirect = HTTPStatus.MULTIPLE_CHOICES <= self.upstream_status < HTTPStatus.BAD_REQUEST
        return "redirect" if is_redirect else str(self.upstream_status)


class InvalidAnswer(CouldNotVerify):
    """The upstream's answer is not a valid answer of the handle API."""

    proxy_error = "http_protocol_error"
    token = "upstream-bad-answer"

    @property
    def concerns_name(self) -> bool:
        """See CouldNotVerify."""
        return True


class PageAnswer(InvalidAnswer):
    """The upstream's answer is a page of HTML, perhaps of a login portal."""

    @property
    def sign(self) -> str:
        """See CouldNotVerify."""
        return "page"


class OversizedAnswer(InvalidAnswer):
    """The upstream's answer is larger than this resolver accepts."""

    # The upstream did nothing wrong. Its other servers and transports have the same answer.
    @classmethod
    def over(cls, max_bytes: int) -> OversizedAnswer:
        """The error for an answer with more bytes than the limit."""
        return cls(f"The upstream's answer is longer than {max_bytes} bytes.")


class UnprovenAnswer(InvalidAnswer):
    """The signature of the handle server's answer is missing or wrong."""

    token = "signature-invalid"


class BreakerOpen(CouldNotVerify):
    """The upstream failed repeatedly, so this resolver does not query it for a short time; try again later."""

    status = 503
    proxy_error = "destination_unavailable"
    token = "breaker-open"


class UpstreamPaused(CouldNotVerify):
    """The upstream has requested a pause with Retry-After; try again later."""

    status = 503
    proxy_error = "destination_unavailable"
    token = "upstream-paused"


class UpstreamLoop(CouldNotVerify):
    """The query to the upstream came back to this resolver; set upstream.url to an address that does not lead here."""

    proxy_error = "proxy_loop_detected"
    token = "upstream-loop"


class NotAdmitted(CouldNotVerify):
    """This resolver cannot send this query to the upstream now; try again later."""

    status = 503
    proxy_error = "connection_limit_reached"


class BudgetSpent(NotAdmitted):
    """This resolver's budget of upstream queries is spent; try again later."""

    token = "budget-spent"


class PlacesFull(NotAdmitted):
    """As many upstream queries as this resolver allows at once are in flight; try again later."""

    token = "places-full"


class UpstreamSlow(NotAdmitted):
    """The upstream is slow: its answers take so long that other queries wait for their turn; try again later."""

    token = "upstream-slow"


class ResourcesShort(CouldNotVerify):
    """This resolver is short of memory or of open files, so it could not query the upstream; try again later."""

    status = 503
    proxy_error = "proxy_internal_error"
    token = "resources-short"


class ShareSpent(NotAdmitted):
    """This client has reached its limit of waiting upstream queries; try again later."""

    status = 429
    token = "share-spent"

    def __init__(self, message: str | None = None, *, quota: Quota, retry_after: float) -> None:
        super().__init__(message, retry_after=retry_after)
        self.quota = quota
        self.retry_after: float = retry_after


class NotInBundle(CouldNotVerify):
    """This resolver runs in sealed mode and answers from its store alone; import the records that it needs."""

    status = 504
    proxy_error = "destination_unavailable"
    token = "sealed"


class NotCached(CouldNotVerify):
    """The cache has no answer about this name, and the request allows no upstream query."""

    # RFC 9111, section 5.2.1.7.
    status = 504
    proxy_error = "destination_unavailable"
    token = "not-cached"


class PrefixDenied(CouldNotVerify):
    """This resolver does not answer names of this prefix."""

    status = 403
    # RFC 9209, section 2.3.17: refused by the configuration, and not forwarded.
    proxy_error = "http_request_denied"
    token = "prefix-denied"


def list_errors(kind: type[DoiProxyError] = DoiProxyError) -> list[type[DoiProxyError]]:
    """A class and those below it: those of this module, and those with a token of features that are loaded.

    An error of another module without a token of its own only ends a command, or is answered as the one above it.
    """
    below = [error for error in kind.__subclasses__() if error.__module__ == __name__ or "token" in vars(error)]
    return [kind, *(failure for error in below for failure in list_errors(error))]


def failure_tokens() -> frozenset[str]:
    """The token of every failure to verify a name: the closed vocabulary of headers, metrics and logs."""
    return frozenset(error.token for error in list_errors(CouldNotVerify))


class StoreError(DoiProxyError):
    """The store could not be read or written."""

    def __init__(self, message: str | None = None, *, cause: str = "") -> None:
        """`cause` is the token of a state that an operator can end, as an event has it. Empty if none is known."""
        super().__init__(message)
        self.cause = cause


class DamagedEntry(StoreError):
    """The store's entry for one name is damaged."""


class ConfigurationError(DoiProxyError):
    """The configuration cannot be used."""


#: With what a request fails: an error of this tree, or of the packages below about its name or its answer.
FAILURES: Final = (DoiProxyError, InvalidName, protocol.HandleProtocolError)


def as_failure(error: DoiProxyError | InvalidName | protocol.HandleProtocolError) -> DoiProxyError:
    """An error of this tree. The only place that translates the errors of the packages below."""
    if isinstance(error, InvalidName):
        return UnreadableName.of(error)
    return as_unverified(error) if isinstance(error, protocol.HandleProtocolError) else error


def as_unverified(error: protocol.HandleProtocolError) -> CouldNotVerify:
    """Why a name could not be verified, given an error of the handle protocol."""
    if isinstance(error, protocol.ServerRefused):
        return UpstreamRefused(
            error.message,
            upstream_status=error.http_status,
            response_code=error.response_code,
            detail=error.detail,
        )
    kind = next((ours for theirs, ours in _UNVERIFIED if isinstance(error, theirs)), CouldNotVerify)
    return kind(error.message, detail=error.detail)


#: The first that fits counts.
_UNVERIFIED: Final[tuple[tuple[type[protocol.HandleProtocolError], type[CouldNotVerify]], ...]] = (
    (protocol.AnswerTooLarge, OversizedAnswer),
    (protocol.SignatureInvalid, UnprovenAnswer),
    (protocol.UnusableAnswer, InvalidAnswer),
    (protocol.ServerTimeout, UpstreamTimeout),
    (protocol.ServerUnreachable, UpstreamUnreachable),
)


def refuse_stripped_texts() -> None:
    """Raise ConfigurationError if Python has left the docstrings out: messages and descriptions are among them."""
    if __doc__ is None:
        raise ConfigurationError("python -OO (PYTHONOPTIMIZE=2) removes texts that this program needs; -O keeps them")
