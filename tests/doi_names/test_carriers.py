"""A carrier is read before names are found: each text says where its name ends in what was written."""

from __future__ import annotations

from doi_names.find_names import find_names
from tests.table import table

#: What is written, the name in it, and the part of it that the name comes from, None for all of it.
WRITTEN = [
    # HTML.
    ("10.1000/a&lt;b next", "10.1000/a<b", "10.1000/a&lt;b"),
    ("10.1000/a&amp;lt;b&lt;/ref&gt;", "10.1000/a<b", "10.1000/a&amp;lt;b"),
    ("10.1000/<b>182</b>-3</td>", "10.1000/182-3", "10.1000/<b>182</b>-3"),
    ("<i>10.1000/ab</i><u>c_16</u>", "10.1000/abc_16", "10.1000/ab</i><u>c_16"),
    ("<i>10.1000/182</i><b>2019</b>", "10.1000/182", "10.1000/182"),
    ("<i>10.1000/182</i>Nature", "10.1000/182", "10.1000/182"),
    ("<a class='x' href=https://doi.org/10.1000/182>work</a>", "10.1000/182", "10.1000/182"),
    ('10.1000/182" target="_blank">x', "10.1000/182", "10.1000/182"),
    ("10.1000/74<947:A>2.0.CO;2", "10.1000/74<947:A>2.0.CO;2", "10.1000/74<947:A>2.0.CO;2"),
    # Wikis, Markdown, chats.
    ("|doi=10.1000/<nowiki>[1]</nowiki>x|", "10.1000/[1]x", "10.1000/<nowiki>[1]</nowiki>x"),
    ("10.1000/182[^1] and", "10.1000/182", "10.1000/182"),
    ("10.1000/182~~old~~", "10.1000/182", "10.1000/182"),
    ("10.1000/182](https://example.org)", "10.1000/182", "10.1000/182"),
    ("10.1000/1<1:A><http://2.0.CO|2.0.CO>;2", "10.1000/1<1:A>2.0.CO;2", "10.1000/1<1:A><http://2.0.CO|2.0.CO>;2"),
    ("10.1000/7<9:A>[http://2.0.CO](https://t.example/4);2", "10.1000/7<9:A>2.0.CO;2", None),
    ('10.1000/7<9:A><a href="http://2.0.CO">2.0.CO</a>;2', "10.1000/7<9:A>2.0.CO;2", None),
    ("10.1000/7<9:A>http://2.0.CO;2", "10.1000/7<9:A>2.0.CO;2", None),
    # LaTeX and BibTeX.
    (r"10.1000/1\_8\%2", "10.1000/1_8%2", r"10.1000/1\_8\%2"),
    (
        r"10.1000/a{\_}\textless{}$>${\textunderscore}b",
        "10.1000/a_<>_b",
        r"10.1000/a{\_}\textless{}$>${\textunderscore}b",
    ),
    (r"10.1000/a\#b", "10.1000/a#b", r"10.1000/a\#b"),
    (r"10.1000/til\textasciitilde{}de", "10.1000/til~de", r"10.1000/til\textasciitilde{}de"),
    (r"10.1000/a{\char95}b\string_c", "10.1000/a_b_c", r"10.1000/a{\char95}b\string_c"),
    (r"10.1000/a\char`\_b\allowbreak c", "10.1000/a_bc", r"10.1000/a\char`\_b\allowbreak c"),
    (r"10.1000/\emph{a}1\footnote{x}", "10.1000/a1", r"10.1000/\emph{a}1"),
    ("doi={10.1000/182},pages={1}", "10.1000/182", "10.1000/182"),
    # JSON, programs, RTF.
    (r"10.1000/a\u003cb\x3ec", "10.1000/a<b>c", r"10.1000/a\u003cb\x3ec"),
    (r"10.1000/1\u8211?82", "10.1000/1-82", r"10.1000/1\u8211?82"),
    (r"10.1000\/182\nand", "10.1000/182", r"10.1000\/182"),
    # Quoted-printable.
    ("10.1000/S=2820=29=\n5", "10.1000/S(20)5", "10.1000/S=2820=29=\n5"),
    ("10.1000/182=C2=A0and", "10.1000/182", "10.1000/182"),
    ("?doi=10.1000/182&date=2013", "10.1000/182", "10.1000/182"),
]


@table(("written", "name", "part"), WRITTEN)
def test_the_name_is_found_with_its_place(written: str, name: str, part: str | None) -> None:
    assert [(found.name.text, found.text) for found in find_names(written)] == [(name, part or written)]
