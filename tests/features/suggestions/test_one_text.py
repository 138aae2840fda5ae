"""One text at nine doors: the same name, the same confidence, the same suggestions."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.commands.main import main
from doi_proxy.features.lists.command import add_resolve_arguments, read_choice
from doi_proxy.features.lists.resolve_lists import resolve_lists
from tests.constants import split
from tests.features.assistants.test_tools import Desk
from tests.features.assistants.test_tools import running as running_tools
from tests.features.lists.test_references import FORM, form
from tests.parts import command_context
from tests.web.proxy import OUT_OF_THE_WAY, Proxy

pytestmark = pytest.mark.anyio

BROWSER: Final = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
PROGRAM: Final = "application/json"
SICI: Final = "10.5555/1520(1996)077<0935:WOTW>2.0.CO;2"
NAMES: Final = (
    "10.5555/182", "10.5555/abc_16", "10.5555/S0140-6736(05)12345-6", "10.5555/978-3-319-55696-3_16",
    "10.5555/j.cell.2011.02.013", "10.5555/nature12373", SICI, "10.5555/JOURNAL.PONE.0012345", "10.5555.7/x-1.b",
    "10.5555/zenodo.1234567",
)  # fmt: skip
#: They are registered too.
OTHERS: Final = (
    "10.5555/second", "10.5555/978-3-319-55696-3", "10.5555/corner", "10.5555/slc-2024-00003/", "10.1000/182",
    "10.48550/arXiv.1706.03762", "10.5281/zenodo.1234567", "10/aabbe",
)  # fmt: skip
#: How a name is written or spoilt. The kinds are those of public reports.
KINDS: Final[dict[str, Callable[[str], str]]] = {
    "alone": lambda name: name,
    "label": lambda name: f"doi:{name}",
    "label and blank": lambda name: f"DOI: {name}",
    "URL": lambda name: f"https://doi.org/{name}",
    "encoded URL": lambda name: f"http://dx.doi.org/{quote(name)}",
    "encoded": lambda name: quote(name, safe=""),
    "full stop": lambda name: f"{name}.",
    "reference": lambda name: f"Smith J, Doe K (2020) A title. Journal 3(2):10-12. https://doi.org/{name}.",
    "brackets": lambda name: f"({name})",
    "quotation marks": lambda name: f"“{name}”,",
    "Chinese": lambda name: f"见文献（doi：{name}）。另见",
    "HTML": lambda name: f'<a href="https://doi.org/{name}">A title</a>',
    "Markdown": lambda name: f"[A title](https://doi.org/{name})",
    "LaTeX": lambda name: "\\href{https://doi.org/" + name.replace("_", "\\_") + "}{A title}",
    "proxy of a library": lambda name: f"https://doi-org.ezproxy.example.edu/{name}",
    "letter for a digit": lambda name: name.replace("10.", "l0.", 1),
    "comma for the dot": lambda name: name.replace("10.", "10,", 1),
    "blank": lambda name: name.replace("/", "/ ", 1),
    "line end": lambda name: name.replace("/", "/\n", 1),
    "glued word": lambda name: f"{name}Downloaded from",
    "soft hyphen": lambda name: f"{name[:-2]}\u00ad{name[-2:]}",
    "full width": lambda name: name.replace("10.", "１０．", 1),
    "escaped line end": lambda name: f"{name}\\nand",
    "JSON": lambda name: f'{{"doi":"{name}","year":2020}}',
    "a character too many": lambda name: f"{name}x",
    "letters in numbers": lambda name: name[:9] + name[9:].replace("0", "O").replace("1", "l", 1),
    "a character too few": lambda name: name[:-1],
    "dash": lambda name: name.replace("-", "–"),
    "two names": lambda name: f"{name}; 10.5555/second",
    "another number": lambda name: f"{name} PMID: 12345",
    "tracking": lambda name: f"https://doi.org/{name}?utm_source=x",
    "pages": lambda name: f"{name} 16 pages",
}
STRANGE: Final = (
    "no name", "10.5556", "10.5555/", "10/aabbe", "https://doi.org/aabbe", "arXiv:1706.03762", "doi", "%",
    "https://arxiv.org/abs/1706.03762v3", "https://zenodo.org/records/1234567", "10.5555/comer", "101000/182",
    "10.5555/slc-2024-00003", "10.1000/182 (accessed 2020)", "+10.5555/182", "10.5555/182%20", "10.5555/182、",
    "https://doi.org/10.5555/182#sec1", "10.5555/Сell", "@article{a, doi={10.5555/182}}", "TY  - JOUR",
    "🙂 10.5555/182 🙂", "DOI 10.5555/182 doi:10.5555/182", "10.5555/182/", "10.5555/none", "10.5555/none.",
    "See https://www.example.org/doi/full/10.5555/182.", "10.5555/978-3-319-55696-3 16", "10.5555/abc 16",
)  # fmt: skip
_WRITTEN: Final = [write(name) for write in KINDS.values() for name in NAMES]
TEXTS: Final = tuple(dict.fromkeys([*_WRITTEN, *STRANGE]))
#: Each kind with one or two of the ten names. The night has all texts.
SOME: Final = tuple(dict.fromkeys([*_WRITTEN[::7], *STRANGE]))
#: Guesses that nearly every name has: only a door that looks them up offers one.
LOOKED_UP: Final = frozenset({"nearest", "missing-slash-at-end", "look-alike", "underscore"})


@dataclass
class Doors:
    """One world: a proxy, the tools for assistants and the commands, with the same records."""

    proxy: Proxy
    desk: Desk
    folder: Path
    capture: pytest.CaptureFixture[str]
    settings: dict[str, Any]

    async def post_list(self, path: str, texts: Iterable[str]) -> list[dict[str, Any]]:
        """The rows about the items of a list."""
        body = json.dumps(list(texts))
        rows: list[dict[str, Any]] = (await self.proxy.post(path, body, content_type="application/json")).json
        return rows

    async def post_text(self, path: str, text: str) -> list[dict[str, Any]]:
        """The rows about running text."""
        rows: list[dict[str, Any]] = (await self.proxy.post(path, text, content_type="text/plain")).json
        return rows

    def parse(self, texts: Iterable[str]) -> list[dict[str, Any]]:
        """The rows of `doi-proxy parse`."""
        main(["parse", "--format", "json", "--", *texts])
        return [json.loads(line) for line in self.capture.readouterr().out.splitlines()]

    async def resolve(self, texts: Iterable[str], *flags: str) -> list[dict[str, Any]]:
        """The rows of `doi-proxy resolve` for a file of texts."""
        file = self.folder / "texts.json"
        file.write_text(json.dumps(list(texts)))
        parser = argparse.ArgumentParser()
        add_resolve_arguments(parser)
        choice = read_choice(parser.parse_args([str(file), "--check-suggestions", *flags]))
        await resolve_lists(command_context(Settings(**self.settings)), choice)
        return [json.loads(line) for line in self.capture.readouterr().out.splitlines()]


@pytest.fixture
async def doors(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> AsyncIterator[Doors]:
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Proxy())
        desk = await stack.enter_async_context(running_tools({"upstream_url": proxy.upstream.url}))
        proxy.upstream.put("10.5555")
        for name in (*NAMES, *OTHERS):
            proxy.upstream.put(name, url="https://example.org/")
            # The nearest names are those that a resolver knows.
            await proxy.get(f"/{quote(name)}")
        await desk.call("check_list", lines=[*NAMES, *OTHERS])
        settings = split(OUT_OF_THE_WAY)[1] | {"store_url": "memory:", "upstream_url": proxy.upstream.url}
        yield Doors(proxy, desk, tmp_path, capfd, settings)


def best_of(row: dict[str, Any]) -> tuple[str, str] | None:
    return None if row["best"] is None else (row["best"]["doi"], row["best"]["confidence"])


def suggested(row: dict[str, Any]) -> list[tuple[str, str, bool | None]]:
    return [(other["doi"], other["rule"], other.get("exists")) for other in row["suggestions"]]


def offered(row: dict[str, Any]) -> list[str]:
    """The names that a row offers: its best reading first, without those that do not exist."""
    best = [] if row["best"] is None else [row["best"]["doi"]]
    return list(dict.fromkeys([*best, *(name for name, _, exists in suggested(row) if exists is not False)]))


def linked(page: str) -> list[str]:
    """The names that a page links to, in the order of the page, each once."""
    paths = re.findall(r'<a [^>]*href="/(10[./%][^"?]*)"', page)
    return list(dict.fromkeys(unquote(unescape(path)) for path in paths))


def test_there_are_three_hundred_texts() -> None:
    assert len(TEXTS) >= 300


@pytest.mark.parametrize("texts", [SOME, pytest.param(TEXTS, marks=pytest.mark.nightly)], ids=["some", "all"])
async def test_every_door_reads_every_text_alike(doors: Doors, texts: tuple[str, ...]) -> None:
    failures: list[AssertionError] = []
    parsed = await doors.post_list("/api/parse", texts)
    resolved = await doors.post_list("/api/resolve?suggest=checked", texts)
    require_same_rows(texts, parsed, doors.parse(texts), (await doors.desk.call("parse", texts=list(texts)))["texts"])
    # A store of its own knows no nearest names before they were looked up.
    own = await doors.resolve([*NAMES, *OTHERS, *texts])
    told = [await doors.desk.call("resolve", name=text) for text in texts]
    require_same_rows(texts, resolved, own[len(NAMES) + len(OTHERS) :], told)
    for text, parsed_row, resolved_row in zip(texts, parsed, resolved, strict=True):
        try:
            compare_claims(parsed_row, resolved_row)
            looked_up = await compare_running_text(doors, text, parsed_row, resolved_row)
            await compare_pages(doors, text, resolved_row, looked_up)
        except AssertionError as error:
            error.add_note(f"text: {text!r}")
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(texts)} texts", failures)


def require_same_rows(texts: Iterable[str], *answers: list[dict[str, Any]]) -> None:
    for text, *rows in zip(texts, *answers, strict=True):
        found = [(row.get("verdict"), best_of(row), suggested(row)) for row in rows]
        assert all(one == found[0] for one in found), (text, found)


def compare_claims(parsed: dict[str, Any], resolved: dict[str, Any]) -> None:
    """What is looked up differs from what is not by what is known of each name alone."""
    missing = {name for name, _, exists in suggested(resolved) if exists is False}
    if resolved["verdict"] == "not_found":
        missing.add(resolved["doi"])
    read = best_of(parsed)
    if read is not None and read[0] not in missing:
        assert best_of(resolved) == read
    shown = {name for name, _, _ in suggested(parsed)} | {read and read[0]}
    assert {name for name, rule, exists in suggested(resolved) if exists and rule not in LOOKED_UP} <= shown


async def compare_running_text(
    doors: Doors, text: str, parsed: dict[str, Any], resolved: dict[str, Any]
) -> list[dict[str, Any]]:
    """The rows of the names in the text, which is not a list."""
    extracted = await doors.post_text("/api/extract?output=json", text)
    looked_up = await doors.post_text("/api/resolve?extract=true&suggest=checked&output=json", text)
    told = (await doors.desk.call("check_list", lines=[text]))["lines"]
    names = list(dict.fromkeys(row["doi"] for row in extracted))
    assert [(row["doi"], row["confidence"], row["rule"]) for row in looked_up] == [
        (row["doi"], row["confidence"], row["rule"]) for row in extracted
    ]
    assert [row["doi"] for row in told if row["doi"]] == names
    if not names:
        assert offered(told[0]) == offered(resolved)
    if len(names) == 1:
        # What is literal in its part of a text is sure in the text.
        confidence = extracted[0]["confidence"]
        assert best_of(parsed) in [(names[0], confidence), (names[0], confidence.replace("literal", "sure"))]
        assert offered(looked_up[0]) == offered(told[0])
        # A full stop ends a sentence: the nearest names are then those of the name before it.
        if extracted[0]["text"] == text or "nearest" not in [rule for _, rule, _ in suggested(resolved)]:
            assert offered(looked_up[0]) == offered(resolved)
    return looked_up


async def compare_pages(doors: Doors, text: str, resolved: dict[str, Any], looked_up: list[dict[str, Any]]) -> None:
    """The problem and the page of a path, the form, and the page of references."""
    proxy, wanted = doors.proxy, offered(resolved)
    path = f"/{quote(text, safe='/%?#:')}"
    problem, page = await proxy.get(path, accept=PROGRAM), await proxy.get(path, accept=BROWSER)
    typed = await proxy.post("/", f"hdl={quote(text, safe='')}", accept=BROWSER)
    listed = await proxy.post("/references", form(text, "list.txt"), content_type=FORM)
    assert problem.status == page.status
    if page.status in (400, 404):
        assert linked(page.text) == wanted
        assert [other["doi"] for other in problem.json.get("suggestions", [])] == wanted
    if typed.status in (400, 404):
        assert linked(typed.text) == wanted
    elif typed.status == 200:
        assert linked(typed.text)[:1] == wanted[:1]
    else:
        assert resolved["verdict"] == "resolved"
    # A reference is shown with its own name, whatever is known of it, unless the file is corrected.
    missing = {row["doi"] for row in looked_up if row["verdict"] == "not_found"}
    names = [name for row in looked_up or [resolved] for name in offered(row)]
    assert [name for name in linked(listed.text) if name not in missing] == list(dict.fromkeys(names))
