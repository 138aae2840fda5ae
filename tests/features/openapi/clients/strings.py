"""170 strings of four kinds. The names are invented below 10.5555, the prefix for examples."""

from __future__ import annotations

from typing import Final

_NAMES: Final = (
    "10.5555/12345678",
    "10.5555/library.2024.001",
    "10.5555/a(b)c",
    "10.5555/data-set_7",
    "10.5555/S0140(24)00012-3",
    "10.5555/chapter/3.2",
    "10.5555/ab.cd.ef",
    "10.5555/zenodo-77",
    "10.5555/journal.pone.0000001",
    "10.5555/x;y:z",
)
_SHORT: Final = tuple(f"10/zz{letter}9" for letter in "abcdefghkm")
#: Every name that the upstream knows, with its target.
REGISTERED: Final = {name: f"https://publisher.example/{at}" for at, name in enumerate((*_NAMES, *_SHORT))}

_DOI: Final = tuple(
    form.format(name)
    for name in _NAMES
    for form in ("{}", "doi:{}", "https://doi.org/{}", " http://dx.doi.org/{} ", "info:doi/{}")
)
_SHORT_DOI: Final = tuple(
    form.format(name)
    for name in (name.removeprefix("10/") for name in _SHORT)
    for form in ("10/{}", "doi:10/{}", "https://doi.org/{}", "http://dx.doi.org/10/{}", " 10/{} ")
)
_NOT_A_DOI: Final = tuple(
    """\
hello
978-3-16-148410-0
ISSN 0000-0000
0000-0002-1825-0097
arXiv preprint
PMID: 12345678
https://www.example.org/article/42
mailto:library@example.org
2024-05-17
-
in press
Smith, J. (2020). A title. Journal of Examples, 4(2), 10-20.
Section 10.1
version 10.5.1
hdl:2027/abc.123
urn:isbn:9783161484100
10.
10.5555
https://orcid.org/0000-0002-1825-0097
C:\\Users\\reader\\paper.pdf""".split("\n")
)
#: Names with a copying error, and names that are not registered.
_ERROR: Final = tuple(
    form.format(name.removeprefix("10.5555/"))
    for name in _NAMES
    for form in ("10.5555/{}.", "1O.5555/{}", "10.5555 / {}", "10.5555/{}-unknown", "doi10.5555/{}")
)
#: Each string with its kind.
STRINGS: Final = (
    *((text, "doi") for text in _DOI),
    *((text, "short_doi") for text in _SHORT_DOI),
    *((text, "not_a_doi") for text in _NOT_A_DOI),
    *((text, "error") for text in _ERROR),
)
