"""Whether a reference is about the work that its DOI names: cases with the answer decided beforehand."""

from __future__ import annotations

from typing import Final

import pytest

from doi_proxy.features.metadata.match import MAX_CHARACTERS, Match, Work, match

BODIES: Final = Work("On the electrodynamics of moving bodies", "Einstein", 1905)
WOLVES: Final = Work("Population genetics of grey wolves in northern Europe", "Müller", 2014)
BOSON: Final = Work("Observation of a new particle in the search for the Higgs boson", "ATLAS Collaboration", 2012)
SHORT: Final = Work("Editorial", "Smith", 2019)
CHINESE: Final = Work("中国北方狼群的遗传多样性研究", "王", 2011)
RUSSIAN: Final = Work("Генетика популяций серых волков", "Иванов", 2010)
NOBODY: Final = Work("Annual statistics of river water quality in Finland", "", None)


def bib(**fields: str) -> str:
    inner = ",\n".join(f"  {name} = {{{text}}}" for name, text in fields.items())
    return f"@article{{key,\n{inner}\n}}"


def ris(**fields: str) -> str:
    lines = [f"{tag.rstrip('_')}  - {text}" for tag, text in fields.items()]
    return "\n".join(["TY  - JOUR", *lines, "ER  - "])


CASES: Final[list[tuple[str, Work, Match]]] = [
    # The same work, in BibTeX
    (bib(title="On the Electrodynamics of Moving Bodies", author="Einstein, Albert", year="1905"), BODIES, "same"),
    (bib(title="{On the {E}lectrodynamics of Moving Bodies}", author="A. Einstein"), BODIES, "same"),
    (bib(title="On the electrodynamics of moving bodies: a translation", year="1905"), BODIES, "same"),
    (bib(title="Electrodynamics of moving bodies", author="Lorentz", year="1905"), BODIES, "same"),
    (bib(author='M{\\"u}ller, Eva', title="Population genetics of grey wolves", date="2014-05"), WOLVES, "same"),
    (
        bib(author="Mueller, Eva", title="Population Genetics of Grey Wolves in Northern Europe", year="2015"),
        WOLVES,
        "same",
    ),
    (
        '@article{k, author = "Müller, E", title = "Population genetics of gray wolves in northern Europe"}',
        WOLVES,
        "same",
    ),
    (bib(title="Генетика популяций серых волков", author="Иванов, И.", year="2010"), RUSSIAN, "same"),
    (bib(title="中国北方狼群的遗传多样性研究", author="王", year="2011"), CHINESE, "same"),
    (bib(title="Editorial", author="Smith, J."), SHORT, "same"),
    # RIS
    (ris(TI="On the electrodynamics of moving bodies", AU="Einstein, A.", PY="1905"), BODIES, "same"),
    (ris(T1="Population genetics of grey wolves", A1="Smith, J.", AU="Müller, E.", PY="2014"), WOLVES, "same"),
    # Running text
    ("Einstein A (1905) On the electrodynamics of moving bodies. Ann. Phys. 17. doi:10.1000/1", BODIES, "same"),
    ("Müller et al. 2014. Population genetics of grey wolves in northern Europe. Mol Ecol.", WOLVES, "same"),
    ("ATLAS Collaboration, Observation of a new particle in the search for the Higgs boson, 2012", BOSON, "same"),
    # Another work
    (bib(title="A survey of neural machine translation", author="Jones, Karen", year="2020"), BODIES, "different"),
    (bib(title="A survey of neural machine translation", author="Einstein, A", year="2020"), BODIES, "different"),
    (bib(title="A survey of neural machine translation", author="Jones, K", year="1905"), BODIES, "different"),
    (bib(title="Deep learning for river forecasts", author="Smith and Jones", date="2021"), WOLVES, "different"),
    (ris(TI="Deep learning for river forecasts", AU="Jones, K.", PY="2021/05//"), WOLVES, "different"),
    ("Jones K, Smith J. Deep learning for seasonal river forecasts. Hydrology 2021;3:17.", WOLVES, "different"),
    ("Jones, K. (2021). Attention is all rivers need today. Water. https://doi.org/10.1000/1", BOSON, "different"),
    # One fact is not enough
    (bib(title="A survey of neural machine translation"), BODIES, "unknown"),
    (bib(title="A survey of neural machine translation", author="Einstein", year="1905"), BODIES, "unknown"),
    (bib(author="Jones, K", year="2020"), BODIES, "unknown"),
    (bib(title="Deep learning for river forecasts", author="Jones", year="2021"), NOBODY, "unknown"),
    (bib(title="On the electrodynamics of moving bodies", author="Jones", year="2020"), BODIES, "unknown"),
    # Half of the title
    (bib(title="Genetics of wolves and dogs and foxes in Asia", author="Jones", year="2020"), WOLVES, "unknown"),
    # A short title is the title of many works
    (bib(title="Preface", author="Jones", year="2020"), SHORT, "unknown"),
    (bib(title="On rivers", author="Jones", year="2020"), BODIES, "unknown"),
    # A translated title keeps its author; another script cannot be compared
    (bib(title="Zur Elektrodynamik bewegter Körper", author="Einstein", year="1905"), BODIES, "unknown"),
    (bib(title="К электродинамике движущихся тел", author="Эйнштейн", year="1925"), BODIES, "unknown"),
    (bib(title="Genetics of wolves in China", author="Wang", year="2001"), CHINESE, "unknown"),
    # A reference without a title
    ("Aad G. et al., Phys. Lett. B 716, 1 (2012). doi:10.1000/1", BOSON, "unknown"),
    ("J. Smith, K. Jones and L. Brown, Journal of High Energy Physics 12 (2009) 14", BODIES, "unknown"),
    ("John Smith and Karen Jones and Lisa Brown, 2009", BODIES, "unknown"),
    ("10.1000/182", BODIES, "unknown"),
    ("https://doi.org/10.1000/a-survey-of-neural-machine-translation-systems", BODIES, "unknown"),
    ("", BODIES, "unknown"),
    (bib(note="no fields"), BODIES, "unknown"),
    # In running text, the author must be another one
    ("Einstein A. A survey of neural machine translation systems. 2020.", BODIES, "unknown"),
]


@pytest.mark.parametrize(("reference", "work", "expected"), CASES)
def test_a_reference_is_compared_with_the_work(reference: str, work: Work, expected: Match) -> None:
    assert match(reference, work) == expected


HOSTILE: Final = [
    "@a{" + "{" * 100_000,
    "@a{" + "title = " * 20_000,
    '@a{title = "' + "x" * 100_000,
    "@a{title={" + "a " * 50_000 + "}}",
    "TY  - JOUR\n" + "AU  - x\n" * 20_000,
    "a.b." * 50_000,
    "\\" * 100_000,
    "\u0301" * 100_000,
    "\ud800 half a pair",
    "\x00",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_reference_is_unknown(text: str) -> None:
    assert match(text, BODIES) == match(text[:MAX_CHARACTERS], BODIES) == "unknown"


def test_a_hostile_title_is_compared() -> None:
    assert match("A survey of machine translation systems", Work("{" * 500)) == "unknown"
    assert match(bib(title="a b c d"), Work("\u0301" * 500, "\u0301", 1)) == "unknown"
