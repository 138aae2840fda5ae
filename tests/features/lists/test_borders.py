"""The borders of the pieces of a list do not matter: any cuts give the same items."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.lists.file_format import ListFormat, format_of, is_gzip, open_reader
from app.features.lists.item import Item

LIMIT = 60
#: What a list of each format is built of.
PIECES = {
    ListFormat.BIBTEX: [
        "@article{a,\n",
        " doi = {10.1000/1},\n",
        "}\n",
        "url={https://doi.org/10.1000/2}",
        "é",
        "\r\n",
        "@",
    ],
    ListFormat.RIS: [
        "TY  - JOUR\r\n",
        "DO  - 10.1000/1\n",
        "UR  - https://doi.org/10.1000/2\n",
        "ER  - \n",
        "é",
        "\r",
        "x" * 70,
    ],
}


@pytest.mark.parametrize("form", PIECES, ids=lambda form: form.value)
@given(data=st.data())
def test_any_borders_give_the_same_items(form: ListFormat, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(PIECES[form]), max_size=12))).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    assert read(form, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]) == read(form, [text])


def read(form: ListFormat, pieces: list[bytes]) -> list[Item]:
    reader = open_reader(form, LIMIT)
    items: list[Item] = []
    for piece in pieces:
        items += reader.feed(piece)
    return items + reader.end()


@pytest.mark.parametrize(
    ("name", "column", "form"),
    [
        ("refs.bib", None, ListFormat.BIBTEX),
        ("refs.BIB.GZ", "doi", ListFormat.BIBTEX),
        ("refs.ris", None, ListFormat.RIS),
        ("a.ndjson", None, ListFormat.JSONL),
        ("a.jsonl.gz", None, ListFormat.JSONL),
        ("a.json", None, ListFormat.JSON),
        ("a.tsv", None, ListFormat.CSV),
        ("a.txt", None, ListFormat.TEXT),
        ("-", None, ListFormat.TEXT),
        ("-", "doi", ListFormat.CSV),
    ],
)
def test_the_name_of_a_file_says_its_format(name: str, column: str | None, form: ListFormat) -> None:
    assert format_of(name, column) is form
    assert is_gzip(name) == name.lower().endswith(".gz")
