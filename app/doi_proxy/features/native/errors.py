"""The errors of handle servers."""

from __future__ import annotations

from doi_proxy.errors import CouldNotVerify, InvalidAnswer, UpstreamUnreachable


class HandleServerUnreachable(UpstreamUnreachable):
    """The handle server that is responsible for this name could not be reached."""

    token = "handle-server-unreachable"
    title = "The handle server could not be reached"

    @property
    def concerns_name(self) -> bool:
        """See CouldNotVerify. Other prefixes lead to other servers."""
        return True


class MalformedMessage(InvalidAnswer):
    """A message of the native Handle protocol cannot be decoded."""

    token = "malformed-message"
    title = "The message of the handle server cannot be read"


class AnswerMismatch(InvalidAnswer):
    """The handle server's answer is not an answer to this query."""

    token = "answer-mismatch"
    title = "The answer belongs to another query"


class ServiceNotFound(CouldNotVerify):
    """No handle server could be found that is responsible for this name."""

    # RFC 9209, section 2.3.3.
    proxy_error = "destination_not_found"
    token = "service-not-found"
    title = "No handle server is responsible for the name"

    @property
    def concerns_name(self) -> bool:
        """See CouldNotVerify. Other prefixes lead to other servers."""
        return True
