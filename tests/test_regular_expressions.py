"""Every regular expression of the program takes linear time: each is tried on long hostile texts.

Each is tried in the way in which the program uses it: a search begins at every character, a match at the first alone.
On one of these texts, a linear expression takes a millisecond, and a quadratic one is ended by an alarm.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import signal
from collections.abc import Callable, Iterator
from itertools import chain, product
from types import FrameType
from typing import Any, Final

import pytest

import doi_names
import doi_proxy
import handle_protocol
from doi_names.derived import RULES
from doi_proxy.list_formats.formats import FORMATS
from tests.hostile.turns import slowness

#: Seconds of processor time for one text. The simplest quadratic expression, `a+b` as a search, takes three to eight
#: times as long.
DEADLINE: Final = 0.025
#: Characters of a text.
LENGTH: Final = 16_384
#: Expressions that are searched for, or replaced, anywhere in a text; all others begin at its first character.
#: So are those of `doi_names.repair` and `doi_names.derived`.
SEARCHED: Final = frozenset(
    {
        "doi_names.carriers._END",
        "doi_names.carriers._IN_TAG",
        "doi_names.carriers._SPECIAL",
        "doi_names.name._FORBIDDEN",
        "doi_proxy.list_formats.bibliographies._DOI_FIELD",
        "doi_proxy.list_formats.bibliographies._TEX",
        "doi_proxy.list_formats.bibliographies._TEX_COMMAND",
        "doi_proxy.list_formats.bibliographies._WHITE_SPACE",
        "doi_names.presentation._MALFORMED",
        "doi_names.presentation._QUERY_OR_FRAGMENT",
        "doi_names.presentation._DOT_SEGMENT",
        "doi_names.presentation._LAST_DOT_SEGMENT",
        "doi_names.presentation._NOT_IN_A_PATH",
        "doi_proxy.resolver.target._HOST",
        "handle_protocol.value.JSON_STRING",
        "doi_proxy.web.api.JSON_STRING",
        "doi_proxy.web.api._INVALID_IN_CALLBACK",
        "doi_proxy.web.responses._DROPPED",
        "doi_proxy.web.responses._ESCAPED",
        "doi_proxy.web.locations._NOT_XML",
        "doi_proxy.web.request_path._SEPARATOR",
    }
)
#: What is repeated: pieces that an expression of this program begins with, goes on with or nearly ends with.
PIECES: Final = (
    "a", "0", ".", ".a", "a.", "/", "//", "-", " ", "\t", "\r\n", "\n", ",", ";", ":", "@", "a@", "a@.", "=", "?", "#a",
    "&", "%", "%2", "\\", "\\\\", '"', '\\"', "[", "]", "{", "}", "<", "$", "é", "\u00ad", "\u2010", "\u00ad\u2010-",
    "http:", "http://", "http://a@", "doi:", "doi.org/", "doi", "doi =", "10.", "10.1", "10.1000", "10.1/", "urn:doi:",
    "0-", "a: b\r\n", "GET", "q=0.", "a;q=1,", "a-a", "\\url ", "\\textless ", "/..", "/.", "//:", "2020-01-01T",
)  # fmt: skip
#: Expressions of modules that search, which match a whole text only.
MATCHED_WHOLE: Final = frozenset({"doi_names.derived._PLUS_IN_NAME"})
STARTS: Final = ("", "10.1000/", "a@a", "http://a")
ENDS: Final = ("", "\x00", "@")


def expressions() -> Iterator[tuple[str, re.Pattern[Any]]]:
    packages = (doi_names, handle_protocol, doi_proxy)
    walks = (pkgutil.walk_packages(package.__path__, f"{package.__name__}.") for package in packages)
    for module in chain.from_iterable(walks):
        if module.name.endswith("__main__"):
            continue
        for name, found in vars(importlib.import_module(module.name)).items():
            if isinstance(found, re.Pattern):
                yield f"{module.name}.{name}", found
            elif isinstance(found, dict):
                patterns = [(key, value) for key, value in found.items() if isinstance(value, re.Pattern)]
                yield from ((f"{module.name}.{name}[{key}]", value) for key, value in patterns)
    for rule in RULES:
        yield f"doi_names.derived.{rule.rule}", rule.pattern
    for form in FORMATS:
        if form.begins is not None:
            yield f"doi_proxy.list_formats.formats.{form.name}", form.begins


EXPRESSIONS: Final = dict(expressions())


def test_every_expression_is_a_constant_of_its_module() -> None:
    assert "doi_proxy.web.shown_values._EMAIL" in EXPRESSIONS and len(EXPRESSIONS) > 45


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    """A function that gives the code from now on `DEADLINE` seconds of processor time, longer on a slow machine."""
    deadline = DEADLINE * slowness()

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("an expression takes more than linear time")

    def start() -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, deadline)

    before = signal.signal(signal.SIGVTALRM, ring)
    yield start
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


def test_every_name_of_the_table_is_an_expression() -> None:
    assert EXPRESSIONS.keys() >= SEARCHED


@pytest.mark.nightly
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_it_takes_linear_time(name: str, alarm: Callable[[], None]) -> None:
    in_text = name.startswith(("doi_names.repair.", "doi_names.derived.")) and name not in MATCHED_WHOLE
    searches = name in SEARCHED or in_text
    try_expression(EXPRESSIONS[name], alarm, searches=searches)


def test_a_quadratic_expression_is_found(alarm: Callable[[], None]) -> None:
    with pytest.raises(TimeoutError):
        try_expression(re.compile("a+b"), alarm, searches=True)


def try_expression(pattern: re.Pattern[Any], alarm: Callable[[], None], *, searches: bool) -> None:
    for piece in PIECES:
        for start, end in product(STARTS, ENDS):
            text: Any = start + piece * (LENGTH // len(piece)) + end
            given = text.encode() if isinstance(pattern.pattern, bytes) else text
            alarm()
            pattern.fullmatch(given)
            if searches:
                pattern.sub(given[:0], given)
            else:
                pattern.match(given)
