"""The source of a sealed resolver, which has no upstream."""

from __future__ import annotations

import pytest

from doi_names.name import HandleName
from doi_proxy.errors import NotInBundle
from doi_proxy.upstream.source import SealedSource, UpstreamQuery

pytestmark = pytest.mark.anyio

NAME = HandleName("10.1000/182")


@pytest.mark.parametrize(
    ("query", "names_the_parameters"),
    [
        (UpstreamQuery(NAME), False),
        (UpstreamQuery(NAME, authoritative=True), True),
        (UpstreamQuery(NAME, certified=True), True),
    ],
)
async def test_a_query_is_refused_and_the_message_says_what_to_leave_out(
    query: UpstreamQuery, names_the_parameters: bool
) -> None:
    with pytest.raises(NotInBundle) as error:
        await SealedSource().fetch(query)
    assert ("without `auth` and `cert`" in error.value.message) is names_the_parameters


async def test_a_query_about_agencies_is_refused() -> None:
    with pytest.raises(NotInBundle):
        await SealedSource().registration_agencies(["10.1000"])
