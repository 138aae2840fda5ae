"""Readers of the files of Crossref and DataCite, and of tables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from doi_proxy.features.registry.json_values import (
    LAST_DATE,
    MAX_AGENCY_CHARACTERS,
    MAX_REASONS,
    MAX_URL_BYTES,
    BlockReader,
    CrossrefReader,
    DataCiteReader,
    Findings,
    InvalidRegistryRecord,
    InvalidTable,
    RecordDates,
    TableReader,
    make_record,
    parse_date,
    read_table_form,
)
from tests.features.registry.samples import crossref_work, datacite_record, json_lines
from tests.table import table

DATES = RecordDates(default=1_000, latest=2_000_000_000)
WORK = crossref_work("10.5555/Work", "https://example.org/work")
RECORD = datacite_record("10.5555/record", "https://example.org/record")


def read(reader: BlockReader, *blocks: bytes) -> Findings:
    """What a reader finds in blocks."""
    findings = Findings()
    for block in blocks:
        reader.read(block, DATES, findings)
    return findings


WORK_ROW = ("10.5555/WORK", 1_719_792_000, "Crossref", "https://example.org/work")
RECORD_ROW = ("10.5555/RECORD", 1_719_792_000, "DataCite", "https://example.org/record")


@pytest.mark.parametrize(
    "block",
    [
        json_lines([WORK, WORK]),
        json.dumps({"items": [WORK, WORK]}).encode(),
        json.dumps({"items": [WORK, WORK]}, indent=2).encode(),
        json.dumps([WORK, WORK]).encode(),
        json_lines([{"items": [WORK]}, {"items": [WORK]}]),
        json.dumps({"status": "ok", "message": {"total-results": 2, "items": [WORK, WORK]}}).encode(),
    ],
    ids=["lines", "document", "indented", "array", "documents", "REST API"],
)
def test_works_of_crossref_are_read_in_every_shape_of_its_files(block: bytes) -> None:
    found = read(CrossrefReader(), block)
    assert (found.records, found.read, found.refused) == ([WORK_ROW] * 2, 2, 0)


@pytest.mark.parametrize(
    "block",
    [
        json_lines([RECORD, RECORD]),
        json.dumps([RECORD, RECORD]).encode(),
        json.dumps({"data": [RECORD, RECORD], "meta": {"total": 2}}, indent=2).encode(),
    ],
    ids=["lines", "array", "REST API"],
)
def test_records_of_datacite_are_read_in_every_shape_of_its_files(block: bytes) -> None:
    found = read(DataCiteReader(), block)
    assert (found.records, found.read, found.refused) == ([RECORD_ROW] * 2, 2, 0)


@pytest.mark.parametrize(
    ("changes", "date"),
    [
        ({}, 1_719_792_000),
        ({"indexed": {"date-time": "2024-07-01T00:00:00Z"}}, 1_719_792_000),
        ({"indexed": None}, 1_700_000_000),
        ({"indexed": None, "deposited": None}, DATES.default),
        ({"indexed": {"timestamp": 10**15}}, DATES.latest),
    ],
)
def test_a_work_has_the_date_at_which_it_was_indexed_else_deposited(changes: dict[str, Any], date: int) -> None:
    assert read(CrossrefReader(), json_lines([WORK | changes])).records[0][1] == date


def test_a_work_without_a_target_is_refused_although_it_has_an_address_at_doi_org() -> None:
    found = read(CrossrefReader(), json_lines([crossref_work("10.5555/none", None), WORK]))
    assert (found.records, found.reasons) == ([WORK_ROW], ["record 1: '10.5555/none' has no resource.primary.URL"])


@pytest.mark.parametrize("indent", [None, 2], ids=["one line", "indented"])
def test_an_answer_about_one_name_is_one_record(indent: int | None) -> None:
    work = json.dumps({"status": "ok", "message": WORK}, indent=indent).encode()
    found = read(CrossrefReader(), work)
    assert (found.records, found.read) == ([WORK_ROW], 1)
    found = read(DataCiteReader(), json.dumps({"data": RECORD, "included": []}, indent=indent).encode())
    assert (found.records, found.read) == ([RECORD_ROW], 1)


@pytest.mark.parametrize("document", [{"message": {}}, {"message": {"message": WORK}}, {"data": None}])
def test_a_document_without_a_record_is_one_refused_value(document: dict[str, Any]) -> None:
    for reader in (CrossrefReader(), DataCiteReader()):
        found = read(reader, json.dumps(document, indent=1).encode())
        assert (found.read, found.refused) == (1, 1)


def test_works_with_several_locations_are_counted_and_lead_to_the_primary_one() -> None:
    primary = {"URL": "https://example.org/work"}
    locations: tuple[list[dict[str, str]] | None, ...] = ([{"URL": "https://mirror.example/"}], [], None)
    works = [WORK | {"resource": {"primary": primary, "secondary": urls}} for urls in locations]
    found = read(CrossrefReader(), json_lines([*works, WORK]))
    assert (found.records, found.several) == ([WORK_ROW] * 4, 1)


def test_drafts_of_datacite_are_counted_and_left_out_and_registered_names_are_read() -> None:
    draft = datacite_record("10.5555/draft", "https://example.org/", state="draft")
    registered = datacite_record("10.5555/registered", "https://example.org/", state="registered")
    found = read(DataCiteReader(), json_lines([draft, registered]))
    assert ([row[0] for row in found.records], found.drafts, found.read) == (["10.5555/REGISTERED"], 1, 2)


def test_a_record_of_datacite_without_attributes_or_date_is_read_as_far_as_it_goes() -> None:
    record = datacite_record("10.5555/a", "https://example.org/", updated=None)
    del record["attributes"]["doi"]
    found = read(DataCiteReader(), json_lines([record, {"id": "10.5555/b", "type": "dois"}]))
    assert found.records == [("10.5555/A", DATES.default, "DataCite", "https://example.org/")]
    assert found.reasons == ["record 2: '10.5555/b' has no URL"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"DOI": 5}', "record 2: it has an unexpected shape"),
        (b'{"DOI": "10.5555/x", "resource": []}', "record 2: it has an unexpected shape"),
        (b'{"DOI": "10.5555/x"', "record 2: it is not valid JSON"),
        (b"[" * 5_000, "record 2: it has an unexpected shape"),
        (b'{"DOI": "10.5555/\xff"}', "record 2: it is not valid JSON"),
        (b'"10.5555/x"', "record 2: it has an unexpected shape"),
        (b"{}", "record 2: it has no DOI name"),
    ],
)
def test_a_value_that_cannot_be_read_costs_only_itself(line: bytes, reason: str) -> None:
    found = read(CrossrefReader(), json_lines([WORK]) + line + b"\n" + json_lines([WORK]))
    assert (found.records, found.read, found.refused) == ([WORK_ROW] * 2, 3, 1)
    assert found.reasons[0].startswith(reason), found.reasons


def test_a_bad_value_inside_a_document_costs_only_itself() -> None:
    found = read(CrossrefReader(), json.dumps({"items": [WORK, {"DOI": 5}, WORK]}, indent=1).encode())
    assert (found.records, found.read, found.refused) == ([WORK_ROW] * 2, 3, 1)


def test_the_numbers_of_records_go_on_in_the_next_block_and_only_the_first_reasons_are_remembered() -> None:
    found = read(CrossrefReader(), json_lines([WORK]), json_lines([{}] * (MAX_REASONS + 5)))
    assert (found.refused, len(found.reasons)) == (MAX_REASONS + 5, MAX_REASONS)
    assert found.reasons[0].startswith("record 2: ")


# --- tables -------------------------------------------------------------------------------------------------------


def read_table(text: str) -> Findings:
    """What is found in a table."""
    data = text.encode()
    return read(TableReader(read_table_form(data.partition(b"\n")[0])), data)


@pytest.mark.parametrize(
    "text",
    [
        "doi,url,agency,date\n10.5555/a,https://example.org/,mEDRA,1970-01-02\n",
        "\ufeffDOI;URL;Agency;Date\r\n10.5555/a;https://example.org/;mEDRA;1970-01-02\r\n",
        "date\tagency\turl\tdoi\n1970-01-02\tmEDRA\thttps://example.org/\t10.5555/a",
        "10.5555/a,https://example.org/,mEDRA,1970-01-02",
        '"doi","url","agency","date"\n"10.5555/a","https://example.org/","mEDRA","1970-01-02"\n',
    ],
    ids=["commas", "semicolons", "tabs in another order", "no header", "quotes"],
)
def test_tables_are_read_with_each_delimiter(text: str) -> None:
    found = read_table(text)
    assert found.records == [("10.5555/A", 86_400, "mEDRA", "https://example.org/")]
    assert found.read == 1


def test_a_table_without_agency_and_date_has_those_of_the_file() -> None:
    assert read_table("doi,url\n\n10.5555/a,https://example.org/?a=1\n").records == [
        ("10.5555/A", DATES.default, "", "https://example.org/?a=1")
    ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("10.5555/a,https://example.org/,,yesterday", "'yesterday' is not a date of ISO 8601"),
        (f"10.5555/a,https://example.org/,{'x' * (MAX_AGENCY_CHARACTERS + 1)},", "is not the name of an agency"),
        ("10.5555/a", "'10.5555/a' has no URL"),
        ('10.5555/a,"' + "x" * 200_000, "the row cannot be read: field larger than field limit"),
        ("\udcff,https://example.org/", "the row is not UTF-8"),
    ],
)
def test_a_row_that_cannot_be_used_has_a_reason(row: str, reason: str) -> None:
    data = f"doi,url,agency,date\n{row}\n10.5555/b,https://example.org/,,\n".encode(errors="surrogateescape")
    found = read(TableReader(read_table_form(b"doi,url,agency,date")), data)
    assert (len(found.records), found.refused) == (1, 1)
    assert reason in found.reasons[0]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"doi,state,client_id,updated", "no column `url`"),
        (b"name,target", "begin the table with a line `doi,url`"),
        (b"10.5555/a", "begin the table with a line `doi,url`"),
        (b"", "begin the table with a line `doi,url`"),
    ],
)
def test_a_table_must_say_where_names_and_urls_are(line: bytes, reason: str) -> None:
    with pytest.raises(InvalidTable, match=reason):
        read_table_form(line)


# --- Records of the agencies' files ----------------------------------------------------------------------------------


@table(
    ("doi", "url", "reason"),
    [
        (None, "https://example.org/", "it has no DOI name"),
        ("", "https://example.org/", "it has no DOI name"),
        ("10.5555", "https://example.org/", "'10.5555' is not a DOI name"),
        ("10.5555/a\x00b", "https://example.org/", "control character"),
        ("10.5555/a", None, "'10.5555/a' has no URL"),
        ("10.5555/a", " ", "'10.5555/a' has no URL"),
        ("10.5555/a", "https://example.org/\nX: y", "its URL contains a control character"),
        ("10.5555/a", "https://example.org/\ud800", "its URL contains a control character"),
        ("10.5555/a", "h" * (MAX_URL_BYTES + 1), f"its URL is longer than {MAX_URL_BYTES} bytes"),
        ("10.5555/a", "é" * (MAX_URL_BYTES // 2 + 1), f"its URL is longer than {MAX_URL_BYTES} bytes"),
    ],
)
def test_a_record_that_cannot_be_used_has_a_reason(doi: str | None, url: str | None, reason: str) -> None:
    with pytest.raises(InvalidRegistryRecord) as caught:
        make_record(doi, url, "", 0)
    assert reason in str(caught.value)


def test_the_longest_url_and_letters_of_every_script_are_accepted() -> None:
    assert len(make_record("10.5555/a", "é" * (MAX_URL_BYTES // 2), "", 0)[3]) == MAX_URL_BYTES // 2
    assert make_record("10.5555/a", "https://пример.example/ü b", "", 0)[3] == "https://пример.example/ü b"


def test_a_date_in_the_future_counts_as_the_latest_plausible_one() -> None:
    dates = RecordDates(default=50, latest=100)
    assert [dates.of(date) for date in (None, 7, 100, 101, -5, LAST_DATE + 1)] == [50, 7, 100, 100, 0, 100]


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("1970-01-02", 86_400),
        ("2024-07-01T00:00:00Z", 1_719_792_000),
        ("2024-07-01T00:00:00.000Z", 1_719_792_000),
        ("2024-07-01T02:00:00+02:00", 1_719_792_000),
        ("2024-07-01T00:00:00", 1_719_792_000),
        ("yesterday", None),
        ("", None),
        (None, None),
        ("0001-01-01T00:00:00+00:00", -62_135_596_800),
    ],
)
def test_dates_are_read_in_the_forms_of_iso_8601(text: str | None, date: int | None) -> None:
    assert parse_date(text) == date
