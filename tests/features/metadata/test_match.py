"""Whether a reference is about the work that its DOI names: cases with the answer decided beforehand."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec.structs import replace

from doi_proxy.features.metadata.cited import MAX_CHARACTERS, Cited, read_cited
from doi_proxy.features.metadata.match import Compared, match
from doi_proxy.features.metadata.work import Work
from doi_proxy.list_formats import formats
from doi_proxy.list_formats.entries import expand


def article(title: str, authors: str, year: int | None, place: str = "", kind: str = "journal-article") -> Work:
    """A work. `place` is its container, volume, issue, first and last page, between semicolons."""
    container, volume, issue, page, last = (place.split(";") + [""] * 5)[:5]
    return Work(title, tuple(filter(None, authors.split(", "))), year, "", container, volume, issue, page, last, kind)


def book(title: str, authors: str, year: int, subtitle: str = "", *, by_group: bool = False) -> Work:
    people = tuple(filter(None, authors.split(", ")))
    return Work(title, people, year, subtitle, type="book", is_group=by_group)


BODIES: Final = article("Zur Elektrodynamik bewegter Körper", "Einstein", 1905, "Annalen der Physik;322;10;891;921")
PLANTS: Final = article(
    "Genomic signatures of adaptation to climate in alpine plants", "Meier, Rossi, García", 2018,
    "Molecular Ecology;27;4;912;930",
)  # fmt: skip
PREPRINT: Final = article(PLANTS.title, "Meier, Rossi, García", 2017, "bioRxiv", "posted-content")
ERRATUM: Final = Work(
    "Correction to: " + PLANTS.title, PLANTS.authors, 2019, "", "Molecular Ecology", "28", "2", "455", is_notice=True
)
COMMENT: Final = Work(f"Comment on “{PLANTS.title}”", ("Huber",), 2019, "", "Molecular Ecology", "28", is_notice=True)
COUPLING: Final = article(
    "Palladium-Catalyzed Cross-Coupling of Organoboron Compounds", "Miyaura, Suzuki", 1995,
    "Chemical Reviews;95;7;2457;2483",
)  # fmt: skip
DIGITS: Final = article(
    "Gradient-based learning applied to document recognition", "Lecun, Bottou, Bengio, Haffner", 1998,
    "Proceedings of the IEEE;86;11;2278;2324",
)  # fmt: skip
NETS: Final = article("Deep learning", "LeCun, Bengio, Hinton", 2015, "Nature;521;7553;436;444")
RULES: Final = article("Ten simple rules for sharing data", "Sandve", 2013, "PLoS Computational Biology;9;10;e1003285")
OPINION: Final = article("L'opinion publique n'existe pas", "Bourdieu", 1973, "Les Temps modernes;29;318;1292;1309")
MEMORY: Final = article("La memoria histórica en la España actual", "García Márquez", 2009, "Historia;12;3;45;67")
WOLVES_ZH: Final = article("中国北方狼群的遗传多样性研究", "王", 2011, "生态学报;31;4;1023;1030")
WOLVES_RU: Final = article("Генетика популяций серых волков", "Иванов", 2010, "Генетика;46;5;612;620")
IMAGES_JA: Final = article("深層学習を用いた画像認識の研究", "田中", 2018, "情報処理学会論文誌;59;3;812;820")
QUANTUM: Final = article(
    "Die gegenw\ufffdrtige Lage der Quantenmechanik", "Schr\ufffddinger", 1935, "Naturwissenschaften;23;48;807;812"
)
PARADOX: Final = article("Is the physical description complete?", "Bohr", 1935, "Physical Review;48;8;696;702")
SPEECH: Final = article("Thought and Speech", "Vygotsky", 1962, kind="book")
HANDBOOK: Final = book("Handbook of Quantitative Ecology", "Kitzes", 2022)
CHAPTER: Final = article(
    "Sampling rare species", "Okafor", 2022, "Handbook of Quantitative Ecology;;;55;78", "book-chapter"
)
PRISON: Final = book("Surveiller et punir", "Foucault", 1975)
PLOTS: Final = book("plotter", "Wick", 2016, "Elegant graphics for everyone")
MANUAL: Final = book("Manual of mental disorders and their treatment", "", 2013)
MALARIA: Final = book("World malaria report 2021", "World Health Organization", 2021, by_group=True)
CLIMATE: Final = book(
    "Climate Change 2014", "Intergovernmental Panel on Climate Change (IPCC)", 2014, "Impacts and Adaptation",
    by_group=True,
)  # fmt: skip
FIRES: Final = article("Global fire emissions database", "Randerson", 2017, kind="dataset")
THESIS: Final = article("Sediment transport in alpine rivers", "Keller", 2017, kind="thesis")
SERIES: Final = article("The Elements of Ecology", "Kitzes", 2009, "Springer Series in Statistics", "book")
ERROR: Final = Work("Department of Error", (), 2018, "", "Molecular Ecology", "27", "5", "1301", is_notice=True)
EDITORIAL: Final = article("Editorial", "Smith", 2019, "Journal of Things;3;1;1;2")
LASSO: Final = article("Shrinkage by the lasso: a retrospective", "Tibs", 2011, "Statistics;73;3;273;282")


def bib(**fields: str) -> str:
    inner = ",\n".join(f"  {name} = {{{text}}}" for name, text in fields.items())
    return f"@article{{key,\n{inner},\n  doi = {{10.5555/a}}\n}}\n"


def ris(**fields: str) -> str:
    lines = [f"{tag.rstrip('_')}  - {text}" for tag, text in fields.items()]
    return "\n".join(["TY  - JOUR", *lines, "DO  - 10.5555/a", "ER  - \n"])


SAME: Final[list[tuple[str, Work]]] = [
    # The styles of texts
    ("Meier, A., Rossi, B., & García, C. (2018). Genomic signatures of adaptation to climate in alpine plants. "
     "Molecular Ecology, 27(4), 912–930. https://doi.org/10.5555/a", PLANTS),
    ("12. Meier A, Rossi B, et al. Genomic signatures of adaptation to climate in alpine plants. Mol Ecol. "
     "2018;27(4):912-30. doi:10.5555/a", PLANTS),
    ("A. Meier, “Genomic signatures of adaptation to climate in alpine plants,” Mol. Ecol., vol. 27, 2018.", PLANTS),
    ("MEIER, Anna ; ROSSI, B. u. a.: Genomic signatures of adaption to climate in alpine plants. In: Molecular "
     "Ecology 27 (2018), Nr. 4, S. 912-930", PLANTS),
    ("A. Meier, B. Rossi, and C. Garcia. Genomic signatures of adaptation to climate in alpine plants. Molecular "
     "Ecology, 27(4):912–930, 2018.", PLANTS),
    ("Meier u.a.: Genomic signatures of adaptation to climate in alpine plants, 2018, 10.5555/a", PLANTS),
    ("Bourdieu P., « L'opinion publique n'existe pas », Les Temps modernes, n° 318, 1973, p. 1292-1309.", OPINION),
    ("García Márquez, J. (2009). La memoria histórica en la España actual. Historia, 12(3), 45-67.", MEMORY),
    ("Иванов И. И. Генетика популяций серых волков // Генетика. 2010. Т. 46. № 5. С. 612–620.", WOLVES_RU),
    ("王强, 李明. 中国北方狼群的遗传多样性研究[J]. 生态学报, 2011, 31(4): 1023-1030.", WOLVES_ZH),
    ("王强. 中国北方狼群的遗传多样性. 2011.", WOLVES_ZH),
    ("田中太郎：深層学習を用いた画像認識の研究，情報処理学会論文誌，Vol.59，No.3，pp.812-820（2018）", IMAGES_JA),
    ("Sandve GK. Ten simple rules for sharing data. PLoS Comput Biol. 2013;9(10):e1003285.", RULES),
    ("vgl. Wick (2016), plotter, S. 12 ff., 10.5555/a", PLOTS),
    ("Deep learning (LeCun/Bengio/Hinton 2015), 10.5555/a", NETS),
    ("Sandve, G. (2013). Ten “simple rules” for sharing data. PLoS.", RULES),
    ("10.5555/a — Sandve's Ten simple rules for sharing data", RULES),
    ("Meier, A. et al. (2018) 'Genomic signatures of adaptation to climate in alpine plants', Mol. Ecol.", PLANTS),
    ("LeCun, Y. (1998), Gradient based learning applied to document re-cognition, Proc. I. Eng., 86, 2278.", DIGITS),
    # No title in the style
    ("LeCun Y, Bottou L, Bengio Y and Haffner P 1998 Proc. IEEE 86 2278–324", DIGITS),
    ("Y. LeCun, L. Bottou, Proc. IEEE 86 (1998) 2278.", DIGITS),
    ("Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, Proc. IEEE 86, 2278 (1998).", DIGITS),
    ("(12) Miyaura, N.; Suzuki, A. Chem. Rev. 1995, 95 (7), 2457–2483.", COUPLING),
    # A translated title, another script, and lost letters
    ("Einstein, A. (1905). On the electrodynamics of moving bodies. Annals of Physics, 322(10), 891–921.", BODIES),
    ("A. Einstein, “On the electrodynamics of moving bodies,” Ann. Phys., vol. 17, p. 891, 1905.", BODIES),
    ("Ivanov I.I. Population genetics of grey wolves. Russ J Genet. 2010;46(5):612-20.", WOLVES_RU),
    ("Schrödinger E. The present situation of quantum mechanics. Naturwissenschaften. 1935;23:807-12.", QUANTUM),
    ("Schrödinger, E. (1935). Die gegenwärtige Lage der Quantenmechanik.", QUANTUM),
    ("Sandve, G. K. (2013). Zehn einfache Regeln für das Teilen von Daten. PLoS Comput. Biol., 9, e1003285.", RULES),
    # Organisations, editors, editions, and titles that are cut
    (bib(author="WHO", title="World malaria report", year="2021"), MALARIA),
    (bib(editor="Field, C. B. and Barros, V. R.", title="Climate Change 2014: Impacts and Adaptation", year="2014"),
     CLIMATE),
    (bib(author="{Psychiatry Union}", title="Manual of mental disorders and their treatment", year="2013"), MANUAL),
    ("Randerson JT. Global fire emissions database. ORNL DAAC; 2023.", FIRES),
    ("Keller, M. (1966). Sediment transport in alpine rivers (PhD thesis). ETH Zürich.", THESIS),
    ("Meier et al. Genomic signatures of adaptation to climate in... Mol Ecol 2018.", PLANTS),
    ("Meier A, Rossi B. Correction to: Genomic signatures of adaptation to climate in alpine plants. Mol Ecol. "
     "2019;28(2):455.", ERRATUM),
    ("Okafor, C. (2022). Sampling rare species. In J. Kitzes (Ed.), Handbook of Quantitative Ecology (pp. 55–78).",
     CHAPTER),
    # Fields
    (bib(title="{Deep {L}earning}", author="Yann {LeCun} and Bengio, Y.", year="2015"), NETS),
    (bib(author='M{\\"e}ier, Anna', title="Genomic signatures of adaptation to climate", date="2018-02"), PLANTS),
    (bib(title="plotter", subtitle="Elegant graphics for everyone", author="Wick, H."), PLOTS),
    ("@string{t = {Deep}}\n@article{k, title = t # { learning}, author = {LeCun, Y}, year = 2015, doi = {10.5555/a}}\n",
     NETS),
    (bib(collaboration="Meier", title="Genomic signatures of adaptation to climate in alpine plants"), PLANTS),
    (ris(TI="Deep learning", AU="LeCun, Y.", PY="2015"), NETS),
    (ris(T1="Unreadable", A1="Bengio, Y.", AU="LeCun, Y.", T2="Nature", VL="521", SP="436", PY="2015"), NETS),
    (ris(TI="Editorial", AU="Smith, J.", PY="2019"), EDITORIAL),
]  # fmt: skip

DIFFERENT: Final[list[tuple[str, Work]]] = [
    # The authors are right
    ("Meier A, Rossi B, García C. Machine learning for protein design. Nat Methods. 2021;18:112-119.", PLANTS),
    ("Einstein, A. (1912). Lichtgeschwindigkeit und Statik des Gravitationsfelds. Annalen der Physik, 343(7), 355–369.",
     BODIES),
    (bib(author="Meier, Anna", title="The history of the theory of gardens", year="1990"), PLANTS),
    # Nothing is right
    ("Kowalski, J. (2019). Urban heat islands in Central Europe. Climate Research, 44, 101–118.", PLANTS),
    ("Braun K, Lang T. Explainable AI for clinical decision support in hospitals. J Med Syst. 2021;45:77.", PLANTS),
    ("Braun, K. (2020). Governance and Participation in European Water Basins. Water Policy.", PLANTS),
    ("Dubois, M., « L’école à l’épreuve du numérique », Esprit, 2015, p. 4-19.", OPINION),
    ("Becker u.a.: Nachhaltige Lieferketten im Mittelstand, 2021", BODIES),
    ("Pérez, A. (2015). La enseñanza de las lenguas en el siglo XXI. Revista de Educación, 8(1), 1-20.", MEMORY),
    ("张伟. 长江流域水质变化趋势分析[J]. 环境科学, 2015, 36(2): 401-409.", WOLVES_ZH),
    ("王强. 黄河流域泥沙输移特征分析[J]. 水利学报, 2019, 50(4): 102-110.", replace(WOLVES_ZH, authors=())),
    (bib(author="张, 伟", title="长江流域水质变化趋势分析", year="2015"), WOLVES_ZH),
    ("佐藤花子：自然言語処理の基礎と応用，人工知能学会誌，Vol.30，No.1，pp.12-20（2015）", IMAGES_JA),
    ("Петров П. П. Экология озёр Сибири // Экология. 2015. Т. 12. № 1. С. 11–20.", WOLVES_RU),
    (bib(author="Jones, K", title="A survey of neural machine translation", year="2020"), BODIES),
    (ris(TI="Deep learning for river forecasts", AU="Jones, K.", PY="2021/05//"), PLANTS),
    ("Sandve, G. K. (2008). The economics of climate change. American Economic Review, 98(2), 1–37.",
     article("Rules of sharing", "Sandve", 2016, "Handbook of Economics;;;1;20", "book-chapter")),
    # Without a title
    ("P. Müller, K. Schmidt, Phys. Rev. Lett. 99, 120401 (2007).", DIGITS),
    ("Schmidt, K.; Braun, L. Angew. Chem. Int. Ed. 2009, 48, 4114–4133.", COUPLING),
    # The same title
    ("Einstein A, Rosen N. Is the physical description complete? Phys Rev. 1935;47(10):777-780.", PARADOX),
    ("Tibs, R. (1996). Shrinkage by the lasso. Statistics, 58(1), 267–288.", LASSO),
]  # fmt: skip

RELATED: Final[list[tuple[str, Work]]] = [
    (SAME[1][0], PREPRINT),
    ("Meier, A. (2017). Genomic signatures of adaptation to climate in alpine plants. bioRxiv.", PLANTS),
    (SAME[1][0], ERRATUM),
    (next(case for case in SAME if case[1] is ERRATUM)[0], PLANTS),
    (SAME[1][0], COMMENT),
    ("Okafor, C. (2022). Sampling rare species. In J. Kitzes (Ed.), Handbook of Quantitative Ecology (pp. 55–78).",
     HANDBOOK),
    ("Okafor, C.: Sampling rare species. In: Kitzes, J. (Hrsg.): Handbook of Quantitative Ecology. 2022.", HANDBOOK),
    ("Kitzes, J. (2009). Rare species. In The elements of ecology (2nd ed., pp. 485–585). Springer.", SERIES),
    (SAME[1][0], ERROR),
    (bib(author="Okafor, C.", title="Sampling rare species", booktitle="Handbook of Quantitative Ecology"), HANDBOOK),
    ("Kitzes, J. (2022). Handbook of Quantitative Ecology. Wiley.", CHAPTER),
    (bib(title="Manual of mental disorders and their treatment", year="1994"), MANUAL),
    ("Sandve GK. Ten simple rules for sharing data. Gigascience. 2013;2(1):7-9.", RULES),
]  # fmt: skip

#: A title reads otherwise, and no more is known: of a translation, or of another work of the same authors.
DOUBTFUL: Final[list[tuple[str, Work]]] = [
    ("Foucault, M. (1977). Discipline and punish: The birth of the prison (A. Sheridan, Trans.). Pantheon.", PRISON),
    ("Wygotski, L. (1964). Denken und Sprechen. Berlin: Akademie.", SPEECH),
    (bib(author="Vygotskij, L. S.", title="Pensiero e linguaggio", year="1990"), SPEECH),
    (bib(author="Einstein, Albert", title="On the electrodynamics of moving bodies", year="1923"), BODIES),
    (bib(author="WHO", title="Rapport sur le paludisme dans le monde", year="2021"), MALARIA),
    (bib(author="Schrödinger, Erwin", title="The present situation of quantum mechanics", year="1935"), QUANTUM),
    (bib(title="A survey of neural machine translation"), PLANTS),
    ("LeCun Y. A survey of neural machine translation systems. 2015.", NETS),
]

UNKNOWN: Final[list[tuple[str, Work]]] = [
    ("Meier et al. 2018, Mol. Ecol.", PLANTS),
    ("10.5555/a", PLANTS),
    ("https://doi.org/10.5555/a-survey-of-neural-machine-translation-systems", PLANTS),
    ("", PLANTS),
    (bib(note="no fields"), PLANTS),
    (bib(title="К электродинамике движущихся тел"), WOLVES_ZH),
]

CASES: Final = [
    (reference, work, word)
    for word, cases in (
        ("same", SAME), ("different", DIFFERENT), ("related", RELATED), ("doubtful", DOUBTFUL), ("unknown", UNKNOWN)
    )
    for reference, work in cases
]  # fmt: skip


def compare(reference: str, work: Work) -> Compared:
    """Compare a reference as a list has it."""
    form = formats.format_of_head(reference)
    return match(read_cited(reference) if form is None else read_entry(reference, form), work)


def read_entry(text: str, form: formats.ListFormat) -> Cited:
    """What the first reference of a list says."""
    reader = formats.ReferencesReader(65_536) if form is formats.TEXT else form.open(65_536, None, None)
    reader.keeps_entries = True
    items = [item for group in expand([*reader.feed(text.encode()), *reader.end()]) for item in group]
    return read_cited(getattr(items[0], "cited", ""))


@pytest.mark.parametrize(("reference", "work", "expected"), CASES)
def test_a_reference_is_compared_with_the_work(reference: str, work: Work, expected: str) -> None:
    assert compare(reference, work).match == expected


@pytest.mark.parametrize(("reference", "work"), [*SAME, *UNKNOWN])
def test_another_work_is_one_that_differs_in_two_kinds_of_facts(reference: str, work: Work) -> None:
    """A right reference with one fact that is wrong is not accused, whatever the fact."""
    for other in (
        replace(work, title="An essay on something else"),
        replace(work, authors=("Qwertz",)),
        replace(work, year=1700),
        replace(work, volume="7777", issue="77", page="77777", last_page=""),
    ):
        assert compare(reference, other).match != "different"


def test_what_differs_is_named() -> None:
    assert compare(DIFFERENT[0][0], PLANTS).differs == ("title", "place", "year")
    assert compare(RELATED[2][0], ERRATUM).differs[0] == "notice"


#: The same reference as programs write it.
EXPORTS: Final = {
    "medline": "PMID- 1\nTI  - Genomic signatures of adaptation to climate\n      in alpine plants.\nFAU - Meier, A\n"
    "DP  - 2018 Feb\nTA  - Mol Ecol\nVI  - 27\nPG  - 912-30\nLID - 10.5555/a [doi]\n",
    "endnote": f"%0 Journal Article\n%A Meier, Anna\n%T {PLANTS.title}\n%V 27\n%P 912-930\n%D 2018\n%R 10.5555/a\n",
    "wos": f"PT J\nAU Meier, A\nTI {PLANTS.title}\nSO MOL ECOL\nVL 27\nBP 912\nPY 2018\nDI 10.5555/a\nER\n",
    "json": f'[{{"title": ["{PLANTS.title}"], "author": [{{"family": "Meier"}}], "DOI": "10.5555/a", '
    '"issued": {"date-parts": [["2018"]]}}]',
    "jsonl": f'{{"attributes": {{"doi": "10.5555/a", "titles": [{{"title": "{PLANTS.title}"}}], '
    '"publicationYear": 2018, "creators": [{"name": "Meier, Anna"}]}}',
    "csv": f'Publication Year,Author,Title,DOI,Date\n2018,"Meier, Anna; Rossi, B.",{PLANTS.title},10.5555/a,2018-02\n',
    "bibtex": '@string{me = "Mol. Ecol."}\n@Article{k,\n Author = "Meier, Anna and\n  Rossi, B.",\n title = "Genomic '
    'signatures of adaptation\n to climate" # " in alpine plants",\n journal = me, volume = 27, pages = "912--930",\n'
    ' year = 2018,\n doi = {10.5555/a}}\n',
    "ris": f"TY  - JOUR\nA1  - Meier, A.\nT1  - {PLANTS.title}\nY1  - 2018/02/01/\nUR  - doi:10.5555/a\nER  - \n",
    "text": f"Meier, A.\n(2018). {PLANTS.title}.\nMol Ecol, 27. 10.5555/a\n",
}  # fmt: skip


@pytest.mark.parametrize("name", EXPORTS)
def test_each_format_says_what_its_reference_is(name: str) -> None:
    found = read_entry(EXPORTS[name], formats.BY_NAME[name])
    assert match(found, PLANTS).match == "same" and match(found, DIGITS).match == "different"


HOSTILE: Final = [
    "@a{" + "{" * 100_000,
    "@a{" + "title = " * 20_000,
    '@a{title = "' + "x" * 100_000,
    "TY  - JOUR\n" + "AU  - x\n" * 20_000,
    "a.b." * 50_000,
    "A" * 100_000,
    "Aa Bb. " * 20_000,
    "1(2), 3-4; " * 20_000,
    "“" * 100_000,
    "\\" * 100_000,
    "\u0301" * 100_000,
    "\ud800 half a pair",
    "\x00",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_reference_is_not_accused(text: str) -> None:
    found = match(read_cited(text), BODIES)
    assert found == match(read_cited(text[:MAX_CHARACTERS]), BODIES) and found.match in ("unknown", "doubtful")


def test_a_hostile_title_is_compared() -> None:
    assert compare("A survey of machine translation systems", Work("{" * 500)).match == "unknown"
    assert compare(bib(title="a b c d"), Work("\u0301" * 500, ("\u0301",), 1)).match in ("unknown", "doubtful")
