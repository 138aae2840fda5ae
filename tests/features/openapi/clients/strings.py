"""200 strings of four kinds. The names are invented below 10.5555, the prefix for examples."""

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
Library of the University
978-3-16-148410-0
ISSN 0000-0000
ISBN 9783161484100
0000-0002-1825-0097
arXiv:2101.00001
arXiv:math/0309136v1
PMID: 12345678
PMC1234567
https://www.example.org/
https://www.example.org/article/42
http://example.com/a/b?c=d
ftp://example.org/file.txt
mailto:library@example.org
someone@example.org
2024-05-17
17/05/2024
3.14159
42
n/a
none
-
?
unknown
in press
Smith, J. (2020). A title. Journal of Examples, 4(2), 10-20.
pp. 100-110
vol. 10, no. 5
Fig. 10.5
Section 10.1
version 10.5.1
hdl:2027/abc.123
hdl:1887/4531
urn:isbn:9783161484100
urn:nbn:de:101:1-201102033592
ark:/12148/btv1b8449691v
W2741809807
Q42
b1234567x
10
10.
10.5555
10.1000
ten point one
https://orcid.org/0000-0002-1825-0097
https://ror.org/00example
www.example.org
C:\\Users\\reader\\paper.pdf
/home/reader/paper.pdf""".split("\n")
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
