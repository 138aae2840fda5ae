"""The names of lists: each in any presentation form, each once, and nothing is lost in silence."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from doi_names.errors import InvalidName, NotADOI
from doi_names.name import HandleName
from doi_proxy.cache.entry import FOREVER
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.bundles.bundle import Refused, to_line
from doi_proxy.features.bundles.import_bundle import BundleImport, ImportBounds, bound_entry, import_bundle
from doi_proxy.features.bundles.visit import MAX_LINE_BYTES, NameItem, RefusedItem, UniqueNames, read_lists, read_name
from doi_proxy.system.progress import Bar
from tests.cache.entries import NOW, entry, missing
from tests.clock import Clock
from tests.parts import usual_cache
from tests.table import table
from tests.web.proxy import Proxy

HANDBOOK = "10.1000/182"


def read(path: Path, content: str | bytes, *, column: str | None = None, any_handle: bool = False) -> list[NameItem]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_lists([str(path)], column=column, any_handle=any_handle))


def names(items: list[NameItem]) -> list[str]:
    return [item.text for item in items if isinstance(item, HandleName)]


def refused(items: list[NameItem]) -> list[str]:
    """The places of what was no name, without the file."""
    return [item.place.rpartition(", ")[2] for item in items if isinstance(item, RefusedItem)]


@table("line", ["  10.1000/182\t", "doi:10.1000/182", "https://doi.org/10.1000%2F182?locatt=type:pdf"])
def test_a_line_may_hold_a_name_in_any_presentation_form(tmp_path: Path, line: str) -> None:
    assert names(read(tmp_path / "list.txt", line + "\n")) == [HANDBOOK]


@table(
    "line",
    [
        b"Digital Object Identifier Handbook",
        b"0.NA/10.1000",
        b"10.1000/%zz",
        b"10.1000/\xff\xfe",
        b"10.1000/a\x00b",
        3 * MAX_LINE_BYTES * b"x",
    ],
)
def test_a_line_that_is_not_a_doi_name_is_told_with_its_number_and_the_rest_goes_on(
    tmp_path: Path, line: bytes
) -> None:
    items = read(tmp_path / "list.txt", b"10.1000/1\n# 10.1000/no\n" + line + b"\n\n10.1000/2\n")
    assert (names(items), refused(items)) == (["10.1000/1", "10.1000/2"], ["line 3"])
    failure = items[1]
    assert isinstance(failure, RefusedItem)
    assert failure.reason.endswith(".")
    assert len(failure.text) <= 80


def test_a_short_doi_is_a_name_and_any_handle_is_one_where_that_is_wanted(tmp_path: Path) -> None:
    assert names(read(tmp_path / "list.txt", "10/abcde\n")) == ["10/abcde"]
    assert names(read(tmp_path / "list.txt", "0.NA/10.1000\n", any_handle=True)) == ["0.NA/10.1000"]
    assert read_name("0.NA/10.1000", any_handle=True).text == "0.NA/10.1000"
    with pytest.raises(NotADOI):
        read_name("0.NA/10.1000")
    with pytest.raises(InvalidName):
        read_name("", any_handle=True)


def test_lists_are_read_one_behind_the_other_and_unpacked_by_their_name(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.bib.gz"
    first.write_text("10.1000/1\n")
    second.write_bytes(gzip.compress(b"@misc{b,\n doi = {10.1000/2}}\n"))
    assert names(list(read_lists([str(first), str(second)]))) == ["10.1000/1", "10.1000/2"]


def test_a_file_that_is_not_there_is_told_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("10.1000/1\n")
    for path, problem in ((tmp_path / "b.txt", "neither a file nor a DOI name"), (tmp_path, "this is a folder")):
        with pytest.raises(ConfigurationError, match=problem):
            read_lists([str(tmp_path / "a.txt"), str(path)])


def test_a_compressed_list_that_was_cut_off_is_no_shorter_list(tmp_path: Path) -> None:
    (tmp_path / "list.txt.gz").write_bytes(gzip.compress(b"10.1000/1\n" * 1000, mtime=0)[:-10])
    with pytest.raises(ConfigurationError, match="The gzip data ends too early"):
        list(read_lists([str(tmp_path / "list.txt.gz")]))


def test_names_that_differ_in_the_case_of_ascii_letters_are_one() -> None:
    given = [
        HandleName("10.1000/a"),
        HandleName("10.1000/A"),
        HandleName("10.1000/\u00e4"),
        HandleName("10.1000/\u00c4"),
    ]
    distinct = UniqueNames(given)
    assert names(list(distinct)) == ["10.1000/a", "10.1000/\u00e4", "10.1000/\u00c4"]
    assert distinct.repeated == 1


def test_so_many_names_are_remembered_and_no_more() -> None:
    given = [HandleName(f"10.1000/{number}") for number in (1, 2, 1, 3, 1)]
    assert names(list(UniqueNames(given, most=2))) == ["10.1000/1", "10.1000/2", "10.1000/3", "10.1000/1"]


def test_empty_cells_and_short_rows_are_no_names_and_others_are_told_with_their_line(tmp_path: Path) -> None:
    items = read(tmp_path / "list.csv", "title,doi\na,10.1000/1\nb,\nc\nd,n/a\ne,10.1000/2\n")
    assert (names(items), refused(items)) == (["10.1000/1", "10.1000/2"], ["line 5"])


def test_a_named_column_makes_a_table_of_any_file_but_bibtex(tmp_path: Path) -> None:
    assert names(read(tmp_path / "list", "id\n10.1000/182\n", column="id")) == [HANDBOOK]


# --- Imported records keep within the bounds of the proxy that imports them ------------------------------------------


BOUNDS = ImportBounds(negative_ttl=10, ttl_ceiling=1000, grace=5000, sealed=False)
SEALED = ImportBounds(negative_ttl=60, ttl_ceiling=86_400, grace=5000, sealed=True)


def test_a_sealed_proxy_keeps_records_for_ever_and_lets_not_found_expire() -> None:
    bounded = bound_entry(entry(), SEALED, NOW + 365 * 86_400)
    assert (bounded.fresh_until, bounded.stale_until) == (entry().fresh_until, FOREVER)
    assert not bound_entry(missing(), SEALED, NOW + 61).is_usable(NOW + 61)


def test_a_record_is_fresh_and_usable_no_longer_than_the_proxy_allows() -> None:
    long = bound_entry(entry(ttl=1e8, grace=1e8), BOUNDS, NOW)
    assert (long.fresh_until, long.stale_until) == (NOW + 1000, NOW + 6000)
    short = entry(ttl=10, grace=20)
    assert bound_entry(short, BOUNDS, NOW) == short
    negative = bound_entry(missing(), BOUNDS, NOW)
    assert (negative.fresh_until, negative.stale_until) == (NOW + 10, NOW + 10)


class Damaged(io.BytesIO):
    """A file that ends with an error."""

    def readline(self, size: int | None = -1) -> bytes:
        if line := super().readline(size):
            return line
        raise OSError("damaged")


@pytest.mark.anyio
@pytest.mark.parametrize(("lines", "number"), [([], 1), ([to_line(entry()), b"no record\n"], 3)])
async def test_the_place_where_a_file_cannot_be_read_on_is_reported(lines: list[bytes], number: int) -> None:
    clock = Clock()
    cache = usual_cache("memory:", clock=clock)
    report = await import_bundle(BundleImport(cache, BOUNDS, clock), "a.ndjson", Damaged(b"".join(lines)), Bar())
    assert report.refused[-1] == Refused(number, "the rest of the file cannot be read: damaged")
    await cache.close()


# --- The page of a seed record says no more about its age than the seed does -----------------------------------------


SEED = '{"handle": "10.5555/A", "values": [{"index": 1, "type": "URL", "data": "https://example.org/a"}]}\n'


@pytest.mark.anyio
async def test_a_record_without_times_was_never_confirmed_as_far_as_its_page_knows(tmp_path: Path) -> None:
    path = tmp_path / "seed.ndjson"
    path.write_text(SEED)
    async with Proxy(seed=path) as proxy:
        proxy.upstream.fault("10.5555/A", "reset")
        page = await proxy.get("/10.5555/A?noredirect", accept="text/html")
        rows = await proxy.ask(
            "POST", "/api/resolve?output=json", body='["10.5555/A"]', content_type="application/json"
        )
    assert page.status == 200 and "It could not be confirmed just now." in page.text
    assert "last confirmed" not in page.text
    assert page["age"] is None
    assert rows.json[0]["age"] is None and rows.json[0]["stale"]
