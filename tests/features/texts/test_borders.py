"""The borders of the pieces of a list do not matter: any cuts give the same items."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.texts.lines import Item
from app.features.texts.list_stream import READERS, format_of, has_gzip_name
from tests.table import table

LIMIT = 60
#: What a list of each format is built of.
PIECES = {
    "bibtex": [
        "@article{a,\n",
        " doi = {10.1000/1},\n",
        "}\n",
        "url={https://doi.org/10.1000/2}",
        "é",
        "\r\n",
        "@",
    ],
    "ris": [
        "TY  - JOUR\r\n",
        "DO  - 10.1000/1\n",
        "UR  - https://doi.org/10.1000/2\n",
        "ER  - \n",
        "é",
        "\r",
        "x" * 70,
    ],
}


@pytest.mark.parametrize("form", PIECES)
@given(data=st.data())
def test_any_borders_give_the_same_items(form: str, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(PIECES[form]), max_size=12))).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    assert read(form, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]) == read(form, [text])


def read(form: str, pieces: list[bytes]) -> list[Item]:
    reader = READERS[form](LIMIT, None)
    items: list[Item] = []
    for piece in pieces:
        items += reader.feed(piece)
    return items + reader.end()


@table(
    ("name", "column", "form"),
    [
        ("refs.bib", None, "bibtex"),
        ("refs.BIB.GZ", "doi", "bibtex"),
        ("refs.ris", None, "ris"),
        ("a.ndjson", None, "jsonl"),
        ("a.jsonl.gz", None, "jsonl"),
        ("a.json", None, "json"),
        ("a.tsv", None, "csv"),
        ("a.txt", None, "text"),
        ("-", None, "text"),
        ("-", "doi", "csv"),
    ],
)
def test_the_name_of_a_file_says_its_format(name: str, column: str | None, form: str) -> None:
    assert format_of(name, column) == form
    assert has_gzip_name(name) == name.lower().endswith(".gz")
