"""Aliases: which name is next, and where following ends."""

from __future__ import annotations

import json

import pytest

from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import AliasChainTooLong
from doi_proxy.resolver.resolution import (
    DEFAULT_OPTIONS,
    MAX_ALIASES,
    Action,
    Chain,
    Origin,
    Resolution,
    ResolveOptions,
    next_alias_target,
)
from handle_protocol.referral import Answer, ResponseCode
from tests.table import table


def values(*given: tuple[str, object]) -> bytes:
    return json.dumps(
        [
            {"index": index, "type": type_, "data": {"format": "string", "value": text}}
            for index, (type_, text) in enumerate(given, 1)
        ]
    ).encode()


def resolution(name: str, *given: tuple[str, object], code: ResponseCode = ResponseCode.SUCCESS) -> Resolution:
    entry = Entry(
        key=name.upper(), answer=Answer(code, values(*given)), fetched_at=0.0, fresh_until=1.0, stale_until=1.0
    )
    return Resolution(HandleName(name), entry, Origin.HIT)


def chain(*targets: str) -> Chain:
    """Aliases from 10.5555/0 by these names; the last of them has not been resolved yet."""
    names = ["10.5555/0", *targets[:-1]]
    *aliases, last = (resolution(name, ("HS_ALIAS", target)) for name, target in zip(names, targets, strict=True))
    return Chain(last, tuple(aliases))


def following(count: int) -> Chain:
    return chain(*(f"10.5555/{number}" for number in range(1, count + 1)))


def follow(chain: Chain, options: ResolveOptions) -> HandleName | None:
    return next_alias_target(chain, chain.last.record.select(options.types, options.indexes), options)


@table(
    ("given", "options", "expected"),
    [
        ([("HS_ALIAS", "10.1000/182")], DEFAULT_OPTIONS, "10.1000/182"),
        ([("hs_alias", " 10.1000/182\n")], DEFAULT_OPTIONS, "10.1000/182"),
        ([("HS_ALIAS.x", "10.1000/182")], DEFAULT_OPTIONS, "10.1000/182"),
        # An alias goes before a URL, wherever it stands; of several aliases the first counts.
        ([("URL", "http://a/"), ("HS_ALIAS", "10.1000/182")], DEFAULT_OPTIONS, "10.1000/182"),
        ([("HS_ALIAS", "10.1000/1"), ("HS_ALIAS", "10.1000/2")], DEFAULT_OPTIONS, "10.1000/1"),
        ([("HS_ALIAS", "20.500.12345/x")], DEFAULT_OPTIONS, "20.500.12345/x"),
        ([("URL", "http://a/")], DEFAULT_OPTIONS, None),
        ([("HS_ALIASES", "10.1000/182")], DEFAULT_OPTIONS, None),
        # Only the requested values count.
        ([("HS_ALIAS", "10.1000/182")], ResolveOptions(ignore_aliases=True), None),
        ([("HS_ALIAS", "10.1000/182")], ResolveOptions(types=("URL",)), None),
        ([("URL", "http://a/"), ("HS_ALIAS", "10.1000/182")], ResolveOptions(types=("url",)), None),
        ([("URL", "http://a/"), ("HS_ALIAS", "10.1000/182")], ResolveOptions(types=("hs_alias",)), "10.1000/182"),
        ([("URL", "http://a/"), ("HS_ALIAS", "10.1000/182")], ResolveOptions(indexes=(1,)), None),
        ([("URL", "http://a/"), ("HS_ALIAS", "10.1000/182")], ResolveOptions(indexes=(2,)), "10.1000/182"),
        ([("HS_ALIAS", "10.1000/182")], ResolveOptions(action=Action.SHOW_VALUES), "10.1000/182"),
        # What can be no name leads nowhere.
        ([("HS_ALIAS", "")], DEFAULT_OPTIONS, None),
        ([("HS_ALIAS", " \n")], DEFAULT_OPTIONS, None),
        ([("HS_ALIAS", "10.1000/a\r\nb")], DEFAULT_OPTIONS, None),
        ([("HS_ALIAS", "10.1000/\x00")], DEFAULT_OPTIONS, None),
        ([("HS_ALIAS", "x" * 100_000)], DEFAULT_OPTIONS, None),
        ([("HS_ALIAS", 7)], DEFAULT_OPTIONS, None),
        ([("HS_ALIAS", None)], DEFAULT_OPTIONS, None),
    ],
)  # fmt: skip
def test_the_next_name_is_in_the_first_alias_value_asked_for(
    given: list[tuple[str, object]], options: ResolveOptions, expected: str | None
) -> None:
    found = follow(Chain(resolution("10.5555/0", *given)), options)
    assert (None if found is None else found.text) == expected


def test_a_missing_name_is_no_alias() -> None:
    missing = resolution("10.5555/0", code=ResponseCode.HANDLE_NOT_FOUND)
    assert follow(Chain(missing), DEFAULT_OPTIONS) is None


def test_twenty_aliases_are_followed() -> None:
    assert follow(following(MAX_ALIASES), DEFAULT_OPTIONS) == HandleName("10.5555/20")


def test_the_twenty_first_is_not() -> None:
    with pytest.raises(AliasChainTooLong) as raised:
        follow(following(MAX_ALIASES + 1), DEFAULT_OPTIONS)
    assert raised.value.reached == "10.5555/20" and raised.value.status == 404


@pytest.mark.parametrize(
    ("loop", "reached"),
    [
        (chain("10.5555/0"), "10.5555/0"),
        (chain("10.5555/a", "10.5555/0"), "10.5555/a"),
        (chain("10.5555/a", "10.5555/b", "10.5555/a"), "10.5555/b"),
        # Names that differ in the case of ASCII letters are one.
        (chain("10.5555/a", "10.5555/b", "10.5555/A"), "10.5555/b"),
    ],
)
def test_a_loop_ends_where_it_closes(loop: Chain, reached: str) -> None:
    with pytest.raises(AliasChainTooLong) as raised:
        follow(loop, DEFAULT_OPTIONS)
    assert raised.value.reached == reached


def test_a_chain_knows_its_end() -> None:
    start, end = resolution("10.5555/0", ("HS_ALIAS", "10.5555/1")), resolution("10.5555/1", ("URL", "http://a/"))
    alone = Chain(start)
    assert not alone.is_alias and alone.last is start
    assert alone.then(end).is_alias and alone.then(end).last is end
