"""Why a handle could not be resolved, or an answer could not be read. The docstring of a class is its default message.

Every error is a HandleProtocolError. An answer that came and cannot be used is an UnusableAnswer: it is malformed, is
about something else, is too large, or is not signed as it must be. A server that did not answer refused, was silent
(ServerTimeout), or could not be reached (ServerUnreachable).
"""

from __future__ import annotations


class HandleProtocolError(Exception):
    """The handle could not be resolved."""

    def __init__(self, message: str | None = None, *, detail: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])
        #: The text of a library, an address, an offset in a message: for a log, not for the client of a service.
        self.detail = detail

    @property
    def message(self) -> str:
        """What is wrong, and where."""
        return str(self.args[0])


class UnusableAnswer(HandleProtocolError):
    """The answer cannot be used."""


class InvalidRecord(UnusableAnswer):
    """The record is not one of the handle API (Handle.Net technical manual, chapter 14)."""


class MalformedMessage(UnusableAnswer):
    """A message of the native Handle protocol cannot be decoded."""


class AnswerMismatch(UnusableAnswer):
    """The handle server's answer is not an answer to this query."""


class AnswerTooLarge(UnusableAnswer):
    """The answer is larger than this program accepts."""

    # The server did nothing wrong. Its other interfaces have the same answer.
    @classmethod
    def over(cls, max_bytes: int) -> AnswerTooLarge:
        """The error for an answer with more bytes than the limit."""
        return cls(f"The answer is longer than {max_bytes} bytes.")


class SignatureInvalid(UnusableAnswer):
    """The signature of the handle server's answer is missing or wrong."""


class ServerRefused(HandleProtocolError):
    """The handle server refused or failed to answer."""

    def __init__(
        self,
        message: str | None = None,
        *,
        response_code: int | None = None,
        http_status: int | None = None,
        retry_after: str | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(message, detail=detail)
        #: The response code of the answer (RFC 3652, section 2.2.2.3). None if an HTTP status came in its place.
        self.response_code = response_code
        #: The status of the HTTP tunnel, if it was not 200, and its field Retry-After (RFC 9110, section 10.2.3).
        self.http_status = http_status
        self.retry_after = retry_after


class ServerUnreachable(HandleProtocolError):
    """The handle server could not be reached."""


class ServiceUnreachable(ServerUnreachable):
    """The handle server that is responsible for this name could not be reached."""


class ServerTimeout(HandleProtocolError):
    """The handle server did not answer in time."""


class ServiceNotFound(HandleProtocolError):
    """No handle server could be found that is responsible for this name."""


class HandleNotFound(HandleProtocolError):
    """The handle does not exist, says the server that is responsible for it."""


class RootPaused(HandleProtocolError):
    """The root of the handle system failed several times, so it is not queried for a short time."""

    def __init__(self, message: str | None = None, *, retry_after: float, detail: str = "") -> None:
        super().__init__(message, detail=detail)
        #: Seconds until it is queried again.
        self.retry_after = retry_after


class QueryNotAdmitted(HandleProtocolError):
    """The caller admits no further query. `__cause__` is the reason, an error of the caller."""


class InvalidSite(HandleProtocolError):
    """The file does not describe a site of handle servers."""


class InvalidDump(HandleProtocolError):
    """The dump of a handle server cannot be used."""
