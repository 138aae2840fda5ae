"""The errors of handle servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from doi_proxy import errors
from doi_proxy.upstream.source import read_retry_after
from handle_protocol import errors as protocol


class HandleServerUnreachable(errors.UpstreamUnreachable):
    """The handle server that is responsible for this name could not be reached."""

    token = "handle-server-unreachable"
    title = "The handle server could not be reached"

    @property
    def concerns_name(self) -> bool:
        """See CouldNotVerify. Other prefixes lead to other servers."""
        return True


class UnreadableMessage(errors.InvalidAnswer):
    """A message of the native Handle protocol cannot be decoded."""

    token = "malformed-message"
    title = "The message of the handle server cannot be read"


class ForeignAnswer(errors.InvalidAnswer):
    """The handle server's answer is not an answer to this query."""

    token = "answer-mismatch"
    title = "The answer belongs to another query"


class NoResponsibleService(errors.CouldNotVerify):
    """No handle server could be found that is responsible for this name."""

    # RFC 9209, section 2.3.3.
    proxy_error = "destination_not_found"
    token = "service-not-found"
    title = "No handle server is responsible for the name"

    @property
    def concerns_name(self) -> bool:
        """See CouldNotVerify. Other prefixes lead to other servers."""
        return True


_KINDS: Final[dict[type[protocol.HandleProtocolError], type[errors.CouldNotVerify]]] = {
    protocol.MalformedMessage: UnreadableMessage,
    protocol.AnswerMismatch: ForeignAnswer,
    protocol.ServiceNotFound: NoResponsibleService,
    protocol.ServiceUnreachable: HandleServerUnreachable,
}


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise the errors of the handle protocol as those of the service: CouldNotVerify."""
    try:
        yield
    except protocol.HandleProtocolError as error:
        raise as_failure_of_server(error) from error


def as_failure_of_server(error: protocol.HandleProtocolError) -> errors.CouldNotVerify:
    """Why handle servers did not answer about a name."""
    if isinstance(error, protocol.QueryNotAdmitted) and isinstance(error.__cause__, errors.CouldNotVerify):
        return error.__cause__
    if isinstance(error, protocol.RootPaused):
        return errors.BreakerOpen(retry_after=error.retry_after)
    if type(error) in _KINDS:
        return _KINDS[type(error)](error.message, detail=error.detail)
    failure = errors.as_unverified(error)
    if isinstance(error, protocol.ServerRefused) and error.retry_after is not None:
        failure.retry_after = read_retry_after(error.retry_after, time.time())
    return failure
