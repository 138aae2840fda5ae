"""The errors of the handle protocol, as the service has them."""

from __future__ import annotations

from typing import Final

import pytest

from doi_proxy.errors import (
    BreakerOpen,
    BudgetSpent,
    CouldNotVerify,
    InvalidAnswer,
    OversizedAnswer,
    UnprovenAnswer,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
    as_failure,
)
from doi_proxy.features.native.errors import (
    ForeignAnswer,
    HandleServerUnreachable,
    NoResponsibleService,
    UnreadableMessage,
    as_failure_of_server,
    translated_errors,
)
from handle_protocol import errors as protocol
from handle_protocol.errors import HandleProtocolError

#: What the service has for each error that its sources raise as it is.
KINDS: Final[dict[type[HandleProtocolError], type[CouldNotVerify]]] = {
    protocol.UnusableAnswer: InvalidAnswer,
    protocol.InvalidRecord: InvalidAnswer,
    protocol.MalformedMessage: UnreadableMessage,
    protocol.AnswerMismatch: ForeignAnswer,
    protocol.AnswerTooLarge: OversizedAnswer,
    protocol.SignatureInvalid: UnprovenAnswer,
    protocol.ServerRefused: UpstreamRefused,
    protocol.ServerUnreachable: UpstreamUnreachable,
    protocol.ServiceUnreachable: HandleServerUnreachable,
    protocol.ServerTimeout: UpstreamTimeout,
    protocol.ServiceNotFound: NoResponsibleService,
}


@pytest.mark.parametrize(("theirs", "ours"), KINDS.items(), ids=lambda kind: kind.__name__)
def test_an_error_of_the_protocol_keeps_its_message_and_its_detail(
    theirs: type[HandleProtocolError], ours: type[CouldNotVerify]
) -> None:
    failure = as_failure_of_server(theirs("The server is odd.", detail="offset 7"))
    assert (type(failure), failure.message, failure.detail) == (ours, "The server is odd.", "offset 7")


def list_below(kind: type[HandleProtocolError]) -> set[type[HandleProtocolError]]:
    return {kind, *(error for below in kind.__subclasses__() for error in list_below(below))}


def test_every_error_of_the_protocol_is_a_failure_of_the_service() -> None:
    others = list_below(HandleProtocolError) - set(KINDS)
    assert others == {
        HandleProtocolError,
        protocol.HandleNotFound,
        protocol.InvalidDump,
        protocol.InvalidSite,
        protocol.QueryNotAdmitted,
        protocol.RootPaused,
    }
    assert isinstance(as_failure(HandleProtocolError()), CouldNotVerify)


def test_a_query_that_the_budget_refused_fails_with_the_error_of_the_budget() -> None:
    spent = BudgetSpent(retry_after=3.0)
    error = protocol.QueryNotAdmitted()
    error.__cause__ = spent
    assert as_failure_of_server(error) is spent


def test_a_root_that_is_left_alone_is_an_open_breaker() -> None:
    failure = as_failure_of_server(protocol.RootPaused(retry_after=7.0))
    assert (type(failure), failure.retry_after) == (BreakerOpen, 7.0)


def test_the_tunnel_passes_the_status_and_the_pause_of_http_on() -> None:
    with pytest.raises(UpstreamRefused) as caught, translated_errors():
        raise protocol.ServerRefused("No.", http_status=503, retry_after="120")
    assert (caught.value.upstream_status, caught.value.retry_after) == (503, 120.0)
    assert caught.value.requests_pause
