"""What a name is, when two are equal, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError

import pytest

from doi_names.errors import EmptyName, ForbiddenCodePoint, InvalidName, MalformedEscape, NameTooLong, NotADOI, NotUTF8
from doi_names.name import MAX_NAME_BYTES, DOIName, HandleName, fold, without_home
from doi_names.presentation import BLANKS, read, read_path, read_typed
from tests.table import table

SCHEME = 'The "doi" URI Scheme, Syntax'
HANDBOOK_SYNTAX = "DOI Handbook, section 2.2"
HANDBOOK_CASE = "DOI Handbook, section 2.4"

DOI_NAMES = [
    # text, prefix, registrant code, suffix, source
    ("10.1000/182", "10.1000", "1000", "182", "DOI Handbook, its own DOI name"),
    ("10.1000/123456", "10.1000", "1000", "123456", HANDBOOK_SYNTAX),
    ("10.1038/issn.1476-4687", "10.1038", "1038", "issn.1476-4687", HANDBOOK_SYNTAX),
    ("10.1000.10/123456", "10.1000.10", "1000.10", "123456", "DOI Handbook, sub-divided prefixes"),
    ("10.1103/PhysRevLett.59.381", "10.1103", "1103", "PhysRevLett.59.381", SCHEME),
    ("10.5594/SMPTE.ST2067-21.2020", "10.5594", "5594", "SMPTE.ST2067-21.2020", SCHEME),
    ("10.6338/JDA.202212/SP_17(4).0000", "10.6338", "6338", "JDA.202212/SP_17(4).0000", SCHEME),
    ("10.26321/Á.GUTIÉRREZ.ZARZA.02.2018.03", "10.26321", "26321", "Á.GUTIÉRREZ.ZARZA.02.2018.03", SCHEME),
    ("10.1000/a b", "10.1000", "1000", "a b", "ISO 26324: category Zs is graphic"),
    ("10.1000/a\u0301", "10.1000", "1000", "a\u0301", "ISO 26324: category Mn is graphic"),
    ("10.1000//182", "10.1000", "1000", "/182", "ISO 26324: a suffix is any graphic sequence"),
    ("10.1000/182/", "10.1000", "1000", "182/", "ISO 26324: a suffix is any graphic sequence"),
    ("10.1000/\U0001f600", "10.1000", "1000", "\U0001f600", "ISO 26324: category So is graphic"),
]


@table(("text", "prefix", "code", "suffix", "source"), DOI_NAMES)
def test_a_doi_name_is_a_prefix_a_slash_and_a_suffix(
    text: str, prefix: str, code: str, suffix: str, source: str
) -> None:
    name = DOIName.parse(text)
    assert (name.text, name.prefix, name.suffix) == (text, f"10.{code}", suffix)
    assert name.is_doi
    assert not name.is_prefix


NO_DOI_NAMES = [
    # text, what the message says
    ("11.1000/182", 'begins with "10." at character 1'),
    ("10/abcde", 'begins with "10." at character 1'),
    ("doi:10.1000/182", 'begins with "10." at character 1'),
    ("10./182", "empty element after the dot at character 3"),
    ("10.1000./182", "empty element after the dot at character 8"),
    ("10.1000..10/182", "empty element after the dot at character 8"),
    ("10.10 00/182", "contain white space: U+0020 SPACE at character 6"),
    ("10.1000\u00a0/182", "contain white space: U+00A0 NO-BREAK SPACE at character 8"),
    ("10.1000", "slash after its prefix, at character 8"),
    ("10.1000/", "suffix after its slash, from character 9"),
    ("10.1000:182", "slash after its prefix, at character 12"),
]


@table(("text", "says"), NO_DOI_NAMES)
def test_text_that_is_not_a_doi_name_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(NotADOI) as caught:
        DOIName.parse(text)
    assert says in caught.value.message
    assert not HandleName(text).is_doi


NOT_GRAPHIC = [
    # code point, what the message says, category
    ("\u0000", "U+0000 at character 9, a control character", "Cc"),
    ("\u007f", "U+007F at character 9, a control character", "Cc"),
    ("\u0085", "U+0085 at character 9, a control character", "Cc"),
    ("\ud800", "U+D800 at character 9, a surrogate", "Cs"),
    ("\u00ad", "U+00AD SOFT HYPHEN at character 9, a formatting character", "Cf"),
    ("\u200b", "U+200B ZERO WIDTH SPACE at character 9, a formatting character", "Cf"),
    ("\u2028", "U+2028 LINE SEPARATOR at character 9, a formatting character", "Zl"),
    ("\u2029", "U+2029 PARAGRAPH SEPARATOR at character 9, a formatting character", "Zp"),
    ("\ue000", "U+E000 at character 9, a private-use character", "Co"),
    ("\uffff", "U+FFFF at character 9, an unassigned code point", "Cn"),
    ("\U000e0001", "U+E0001 LANGUAGE TAG at character 9, a formatting character", "Cf"),
]


@table(("character", "says", "category"), NOT_GRAPHIC)
def test_strict_parsing_refuses_every_code_point_that_is_not_graphic(character: str, says: str, category: str) -> None:
    with pytest.raises(ForbiddenCodePoint) as caught:
        DOIName.parse(f"10.1000/{character}182")
    assert says in caught.value.message


@table(("character", "says", "category"), NOT_GRAPHIC)
def test_a_request_may_hold_all_but_controls_and_surrogates(character: str, says: str, category: str) -> None:
    text = f"10.1000/{character}182"
    if category in {"Cc", "Cs"}:
        with pytest.raises(ForbiddenCodePoint) as caught:
            HandleName(text)
        assert says in caught.value.message
    else:
        name = HandleName(text)
        assert name.text == text
        assert name.is_doi
        assert [(str(p), p.category) for p in name.questionable(9)] == [(says.partition(",")[0], category)]


def test_questionable_code_points_are_named_with_their_places() -> None:
    name = HandleName("10.1000/1\u00ad8\ue000")
    first, second = name.questionable(9)
    assert (first.character, first.notation, first.name, first.place) == ("\u00ad", "U+00AD", "SOFT HYPHEN", 10)
    assert (second.notation, second.name, second.place, second.kind) == ("U+E000", None, 12, "a private-use character")


def test_a_graphic_name_has_nothing_questionable() -> None:
    assert HandleName("10.1000/a\u00a0b\u3000ä").questionable(9) == ()


@pytest.mark.parametrize("parse", [HandleName, DOIName.parse])
def test_an_empty_name_is_refused(parse: Callable[[str], HandleName]) -> None:
    with pytest.raises(EmptyName):
        parse("")


@pytest.mark.parametrize("parse", [HandleName, DOIName.parse])
@pytest.mark.parametrize("character", ["a", "ä", "€", "😀"])
def test_the_length_limit_counts_bytes_of_utf_8(parse: Callable[[str], HandleName], character: str) -> None:
    size = len(character.encode())
    room = MAX_NAME_BYTES - len("10.1000/")
    longest = "10.1000/" + character * (room // size)
    assert parse(longest).text == longest
    with pytest.raises(NameTooLong, match=str(MAX_NAME_BYTES)):
        parse(longest + character)


@pytest.mark.parametrize(("characters", "error"), [(2_500, ForbiddenCodePoint), (3_000, NameTooLong)])
def test_a_surrogate_counts_three_bytes(characters: int, error: type[InvalidName]) -> None:
    with pytest.raises(error):
        HandleName("10.1000/" + "\ud800" * characters)


EQUIVALENCE = [
    # one, other, equal, source
    ("10.1000/ABC", "10.1000/abc", True, HANDBOOK_CASE),
    ("10.123/ABC", "10.123/AbC", True, HANDBOOK_CASE),
    ("10.1000/ä", "10.1000/Ä", False, HANDBOOK_CASE),
    ("10.1000/\u00c1", "10.1000/\u0041\u0301", False, SCHEME),
    ("10.1000/1\u002d2", "10.1000/1\u22122", False, SCHEME),
    ("10.1000/1\u002d2", "10.1000/1\u20132", False, SCHEME),
    ("10.1000/ß", "10.1000/SS", False, HANDBOOK_CASE),
    ("10.1000/\u212a", "10.1000/K", False, "Unicode: KELVIN SIGN is not ASCII"),
    ("10.1000/\u0131", "10.1000/I", False, "Unicode: dotless i is not ASCII"),
    ("10.1000/182", "10.1000/182/", False, "ISO 26324: the suffix is opaque"),
    ("10.1000/182", "10.1000//182", False, "ISO 26324: the suffix is opaque"),
]


@table(("one", "other", "equal", "source"), EQUIVALENCE)
def test_names_are_equal_when_only_the_case_of_ascii_letters_differs(
    one: str, other: str, equal: bool, source: str
) -> None:
    first, second = HandleName(one), DOIName(other)
    assert (first == second) is equal
    assert (second == first) is equal
    assert (first.key == second.key) is equal
    assert (hash(first) == hash(second)) is equal


def test_a_name_equals_no_string() -> None:
    assert HandleName("10.1000/182") != "10.1000/182"


def test_folding_touches_nothing_but_ascii_letters() -> None:
    assert fold("azAZ09äßıſ\u212aﬁ@`{") == "AZAZ09äßıſ\u212aﬁ@`{"


def test_the_callers_spelling_is_kept() -> None:
    name = HandleName("10.9999/CaseTest")
    assert (name.text, str(name), name.key) == ("10.9999/CaseTest", "10.9999/CaseTest", "10.9999/CASETEST")


def test_a_name_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        HandleName("10.1000/182").text = "10.1000/1"  # type: ignore[misc]


@pytest.mark.parametrize("kind", [HandleName, DOIName])
def test_a_name_survives_being_stored(kind: type[HandleName]) -> None:
    name = kind("10.1000/Ab")
    again = pickle.loads(pickle.dumps(name))
    assert again == name
    assert again.text == name.text


KINDS = [
    # text, is_doi, is_short_doi, is_prefix, suffix, source
    ("10.1000/182", True, False, False, "182", HANDBOOK_SYNTAX),
    ("10/abcde", False, True, False, "abcde", "shortDOI service"),
    ("10/ABC12", False, True, False, "ABC12", "shortDOI service"),
    ("10/ab-c", False, False, False, "ab-c", "shortDOI service: letters and digits"),
    ("10/", False, False, False, "", "shortDOI service"),
    ("10.5517", False, False, True, None, HANDBOOK_SYNTAX),
    ("10.1000.10", False, False, True, None, "DOI Handbook, sub-divided prefixes"),
    ("10.", False, False, False, None, HANDBOOK_SYNTAX),
    ("10", False, False, False, None, HANDBOOK_SYNTAX),
    ("foo", False, False, False, None, HANDBOOK_SYNTAX),
    ("0.NA/10.1000", False, False, False, "10.1000", "RFC 3651, section 3"),
    ("10.SERV/CROSSREF", True, False, False, "CROSSREF", "DOI Handbook, service handles"),
    ("20.500.12345/1", False, False, False, "1", "RFC 3651, section 2"),
    ("11304/x", False, False, False, "x", "RFC 3651, section 2"),
]


@table(("text", "is_doi", "is_short_doi", "is_prefix", "suffix", "source"), KINDS)
def test_kinds_of_names(
    text: str, is_doi: bool, is_short_doi: bool, is_prefix: bool, suffix: str | None, source: str
) -> None:
    name = HandleName(text)
    assert (name.is_doi, name.is_short_doi, name.is_prefix) == (is_doi, is_short_doi, is_prefix)
    assert name.suffix == suffix


@pytest.mark.parametrize(
    ("text", "reserved"),
    [("10.1000/a/b", True), ("10.1000/1/", True), ("10.1000/ab/c", False), ("10.1000/a", False), ("10.1000", False)],
)
def test_a_suffix_of_one_character_and_a_slash_is_reported_and_not_refused(text: str, reserved: bool) -> None:
    """ANSI/NISO Z39.84-2005 reserves it, and such names are registered."""
    assert HandleName(text).is_reserved is reserved
    if "/" in text:
        assert DOIName.parse(text).is_reserved is reserved


def test_every_refusal_is_an_invalid_name() -> None:
    for text in ("", "x", "10.1000/\x00", "a" * (MAX_NAME_BYTES + 1)):
        with pytest.raises(InvalidName):
            DOIName.parse(text)


@table(
    ("text", "known_as"),
    [
        ("0.NA/10.1000", "10.1000"),
        ("0.na/10.1000.10", "10.1000.10"),
        ("0.NA/20.500", "0.NA/20.500"),
        ("0.NA/10.1000/182", "0.NA/10.1000/182"),
        ("0.NA/", "0.NA/"),
        ("10.1000/182", "10.1000/182"),
    ],
)
def test_the_record_of_a_doi_prefix_is_known_by_the_prefix(text: str, known_as: str) -> None:
    assert without_home(HandleName(text)).text == known_as


# --- The forms that people write, read back into names ---------------------------------------------------------------


HANDBOOK = "DOI Handbook, DOI Name Encoding Rules for URL Presentation"
REFERENCE = "reference proxy"
LENIENT = "more lenient than the reference proxy"
EZPROXY = "host names rewritten by EZproxy and by Innovative's WAM"

PATHS = [
    # raw path, name, source
    (b"/10.1000/182", "10.1000/182", REFERENCE),
    (b"/10.1000%2F182", "10.1000/182", REFERENCE),
    (b"/10.1000%2f182", "10.1000/182", REFERENCE),
    (b"/%31%30.1000/182", "10.1000/182", REFERENCE),
    (b"//10.1000/182", "10.1000/182", REFERENCE),
    (b"///10.1000/182", "10.1000/182", REFERENCE),
    (b"/%2F10.1000/182", "10.1000/182", REFERENCE),
    (b"/doi:10.1000/182", "10.1000/182", REFERENCE),
    (b"/DOI:10.1000/182", "10.1000/182", REFERENCE),
    (b"/hdl:10.1000/182", "10.1000/182", REFERENCE),
    (b"/info:doi/10.1000/182", "10.1000/182", REFERENCE),
    (b"/info:hdl/10.1000/182", "10.1000/182", REFERENCE),
    (b"/INFO:DOI/10.1000/182", "10.1000/182", REFERENCE),
    (b"/doi:%2010.1000/182", "10.1000/182", REFERENCE),
    (b"/doi%3A10.1000%2F182", "10.1000/182", REFERENCE),
    (b"/urn:doi:10.1000:182", "10.1000/182", REFERENCE),
    (b"/URN:DOI:10.1000:182", "10.1000/182", REFERENCE),
    (b"/urn:doi:10.1000/182", "10.1000/182", REFERENCE),
    (b"/urn:hdl:10.1000:182", "10.1000/182", REFERENCE),
    (b"/urn:eidr:10.1000:182", "10.1000/182", REFERENCE),
    (b"/urn:doi:10.123:456", "10.123/456", HANDBOOK),
    (b"/urn:doi:10.123:456ABC%2Fzyz", "10.123/456ABC/zyz", HANDBOOK),
    (b"/urn:doi:10.123:456ABC/zyz", "10.123/456ABC/zyz", REFERENCE),
    (b"/urn:doi:10.123/a:b", "10.123/a:b", REFERENCE),
    (b"/https://doi.org/10.1000/182", "10.1000/182", REFERENCE),
    (b"/http://dx.doi.org/10.1000/182", "10.1000/182", REFERENCE),
    (b"/https://hdl.handle.net/10.1000/182", "10.1000/182", REFERENCE),
    (b"/https%3A%2F%2Fdoi.org%2F10.1000%2F182", "10.1000/182", REFERENCE),
    (b"/https://www.doi.org/10.1000/182", "10.1000/182", LENIENT),
    (b"/http:/doi.org/10.1000/182", "10.1000/182", LENIENT),
    (b"/https:/dx.doi.org/10.1000/182", "10.1000/182", LENIENT),
    (b"/doi.org/10.1000/182", "10.1000/182", LENIENT),
    (b"/https://doi.org/urn:doi:10.123:456", "10.123/456", HANDBOOK),
    (b"/https://doi.org/doi:10.1000/182", "10.1000/182", REFERENCE),
    (b"/10.1000/182%20", "10.1000/182", REFERENCE),
    (b"/%2010.1000/182", "10.1000/182", REFERENCE),
    (b"/10.1000/182%0A", "10.1000/182", REFERENCE),
    (b"/10.1000/182%C2%A0", "10.1000/182", REFERENCE),
    (b"/%EF%BB%BF10.1000/182", "10.1000/182", REFERENCE),
    (b"/10.9999/casetest", "10.9999/casetest", REFERENCE),
    (b"/10.5555/%c3%a4%c3%b6", "10.5555/äö", REFERENCE),
    ("/10.5555/äö".encode(), "10.5555/äö", "RFC 3629"),
    (b"/10.5555/res%23test", "10.5555/res#test", REFERENCE),
    (b"/10.5555/q%3Fx=1", "10.5555/q?x=1", REFERENCE),
    (b"/10.5555/a+b", "10.5555/a+b", REFERENCE),
    (b"/10.5555/a%2Bb", "10.5555/a+b", REFERENCE),
    (b"/10.5555/a%20b", "10.5555/a b", REFERENCE),
    (b"/10.5555/pct%252F", "10.5555/pct%2F", REFERENCE),
    (b"/10.5555/a%2F%2Fb", "10.5555/a//b", REFERENCE),
    (
        b"/10.1002/(SICI)1097-4571(199806)49:8%3C693::AID-ASI4%3E3.0.CO;2-O",
        "10.1002/(SICI)1097-4571(199806)49:8<693::AID-ASI4>3.0.CO;2-O",
        REFERENCE,
    ),
    (
        b"/10.1002/(SICI)1097-4571(199806)49:8<693::AID-ASI4>3.0.CO;2-O",
        "10.1002/(SICI)1097-4571(199806)49:8<693::AID-ASI4>3.0.CO;2-O",
        REFERENCE,
    ),
    # Names of their own: nothing is collapsed, cut or converted.
    (b"/10.1000//182", "10.1000//182", REFERENCE),
    (b"/10.1000/182/", "10.1000/182/", REFERENCE),
    (b"/10.1000/182+", "10.1000/182+", REFERENCE),
    (b"/10.1000/./182", "10.1000/./182", REFERENCE),
    (b"/10.1000/x/../182", "10.1000/x/../182", REFERENCE),
    (b"/10.1000/182;foo=bar", "10.1000/182;foo=bar", REFERENCE),
    (b"/10.1000:182", "10.1000:182", REFERENCE),
    (b"/doi:10.1000:182", "10.1000:182", REFERENCE),
    (b"/doi:doi:10.1000/182", "doi:10.1000/182", REFERENCE),
    (b"/doi:urn:doi:10.1000/182", "urn:doi:10.1000/182", REFERENCE),
    (b"/10.1000/doi.org/x", "10.1000/doi.org/x", "a name is no URL"),
    (b"/10.1000/https://doi.org/10.1000/182", "10.1000/https://doi.org/10.1000/182", "a name is no URL"),
    (b"/10.1000", "10.1000", REFERENCE),
    (b"/10.1000/", "10.1000/", REFERENCE),
    (b"/10/abc12", "10/abc12", "shortDOI service"),
    (b"/abcde", "abcde", "shortDOI service"),
    (b"/0.NA/10.1000", "0.NA/10.1000", "RFC 3651, section 3"),
]


@table(("raw", "name", "source"), PATHS)
def test_a_request_path_names(raw: bytes, name: str, source: str) -> None:
    assert read_path(raw).text == name


HOSTS = [
    ("https://doi.org/", REFERENCE),
    ("HTTPS://DOI.ORG/", "RFC 3986, section 6.2.2.1"),
    ("http://doi.org:80/", "RFC 3986, section 3.2.3"),
    ("https://doi.org//", LENIENT),
    ("https:///doi.org/", LENIENT),
    ("dx.doi.org/", LENIENT),
    ("www.doi.org/", LENIENT),
    ("hdl.handle.net/", LENIENT),
    ("https://doi-org.ezproxy.x.edu/", EZPROXY),
    ("doi-org.ezproxy.x.edu/", EZPROXY),
    ("https://dx-doi-org.ezproxy.x.edu/", EZPROXY),
    ("https://www-doi-org.ezproxy.x.edu/", EZPROXY),
    ("https://hdl-handle-net.ezproxy.x.edu/", EZPROXY),
    ("https://doi-org.ezproxy.x.edu:2443/", EZPROXY),
    ("http://doi.org.ezproxy.x.edu/", EZPROXY),
    ("http://dx.doi.org.ezproxy.x.edu:2048/", EZPROXY),
    ("http://0-doi-org.lib.y.edu/", EZPROXY),
    ("http://0-dx.doi.org.lib.y.edu/", EZPROXY),
    ("https://0-www-doi-org.library.y.edu/", EZPROXY),
    ("http:/0-doi-org.lib.y.edu/", EZPROXY),
]


@table(("host", "source"), HOSTS)
def test_the_host_of_a_resolver_is_taken_off(host: str, source: str) -> None:
    assert read(f"{host}10.1000/182").text == "10.1000/182"
    assert read(f" {host} doi: 10.1000/182 ").text == "10.1000/182"
    assert read_typed(f"{host}10.1000%2F182?nols=y#top").text == "10.1000/182"


@table(
    "text",
    [
        "https://example.org/10.1000/182",
        "https://notdoi.org/10.1000/182",
        "https://doi.org.:443x/10.1000/182",
        "https://doi.orgx/10.1000/182",
        "https://doi-org/10.1000/182",
        "https://xdoi-org.ezproxy.x.edu/10.1000/182",
        "ftp://doi.org/10.1000/182",
        "https://user@doi.org/10.1000/182",
        "10.1000/doi.org/x",
        "10.doi.org/x",
        "10.1000/0-doi-org.lib.y.edu/x",
    ],
)
def test_other_text_is_left_as_it_is(text: str) -> None:
    assert read(text).text == text


@pytest.mark.parametrize("label", ["doi:", "DOI: ", "Doi:\u00a0", "hdl:", "info:doi/", "Info:Hdl/ ", "urn:doi:"])
def test_one_label_is_taken_off_in_any_case(label: str) -> None:
    assert read(f"{label}10.1000/182").text == "10.1000/182"


def test_a_label_in_front_of_a_url_is_taken_off_too() -> None:
    assert read("DOI: https://doi.org/10.1000/182").text == "10.1000/182"
    assert read_typed("doi:https://doi.org/10.1000/182?x#y").text == "10.1000/182"


@pytest.mark.parametrize("label", ["do\u0131:", "\u212adl:", "d\u00adoi:"])
def test_labels_are_ascii(label: str) -> None:
    assert read(f"{label}10.1000/182").text == f"{label}10.1000/182"


@table("blank", BLANKS)
def test_every_surrounding_blank_is_trimmed(blank: str) -> None:
    assert read(f"{blank}{blank}10.1000/182{blank}").text == "10.1000/182"
    assert read(f"doi:{blank}10.1000/182").text == "10.1000/182"


@pytest.mark.parametrize("control", ["\x00", "\x08", "\x0e", "\x1f", "\x7f", "\x84", "\x86", "\x9f"])
def test_a_control_character_at_either_end_is_refused(control: str) -> None:
    for text in (
        f"{control}10.1000/182",
        f"10.1000/182{control}",
        f" {control}10.1000/182",
        f"doi:10.1000/182{control} ",
    ):
        with pytest.raises(ForbiddenCodePoint, match=f"U\\+{ord(control):04X}"):
            read(text)


@pytest.mark.parametrize("character", ["\u00ad", "\u200e", "\u200f", "\u2010"])
def test_the_blanks_end_where_the_reference_proxys_do(character: str) -> None:
    assert read(f"10.1000/182{character}").text == f"10.1000/182{character}"
    assert character not in BLANKS


TYPED = [
    # typed, name
    ("10.1000/182", "10.1000/182"),
    ("  doi: 10.1000/182\n", "10.1000/182"),
    ("https://doi.org/10.1000/456%23789", "10.1000/456#789"),
    ("http://dx.doi.org/10.1006/rwei.1999%22.0001", '10.1006/rwei.1999".0001'),
    ("10.1000/456#789", "10.1000/456#789"),
    ("10.1000/456%23789", "10.1000/456#789"),
    ("10.1000/a?b=c", "10.1000/a?b=c"),
    ("https://doi.org/10.1000/a?b=c", "10.1000/a"),
    ("https://doi.org/10.1000/a%3Fb=c?d", "10.1000/a?b=c"),
    ("https://doi.org/10.1000/a#b?c", "10.1000/a"),
    ("doi.org/10.1000/a#b", "10.1000/a"),
    ("doi:10.1000/a#b", "10.1000/a#b"),
    ("10.1000/a+b", "10.1000/a+b"),
    ("10.1000/ä", "10.1000/ä"),
    ("10.1000/%C3%A4", "10.1000/ä"),
    ("10.1000/pct%252F", "10.1000/pct%2F"),
    ("/10.1000/182", "10.1000/182"),
    ("//^10.1000/182", "^10.1000/182"),
]


@table(("typed", "name"), TYPED)
def test_typed_input_names(typed: str, name: str) -> None:
    assert read_typed(typed).text == name


@table(
    ("raw", "error"),
    [
        (b"/", EmptyName),
        (b"", EmptyName),
        (b"///", EmptyName),
        (b"/%20", EmptyName),
        (b"/doi:", EmptyName),
        (b"/https://doi.org/", EmptyName),
        (b"/https://doi.org", EmptyName),
        (b"/10.5555/%zz", MalformedEscape),
        (b"/10.5555/%", MalformedEscape),
        (b"/10.5555/%C4%D6", NotUTF8),
        (b"/10.5555/nope%00x", ForbiddenCodePoint),
        (b"/10.5555/a%0D%0Ab", ForbiddenCodePoint),
        (b"/10.5555/a\x7fb", ForbiddenCodePoint),
        (b"/10.1000/" + b"a" * 9000, NameTooLong),
        (b"/doi:10.1000/" + b"%C3%A4" * 5000, NameTooLong),
    ],
)
def test_a_path_without_a_name_is_refused(raw: bytes, error: type[InvalidName]) -> None:
    with pytest.raises(error):
        read_path(raw)


def test_in_typed_input_a_percent_sign_always_begins_an_escape() -> None:
    with pytest.raises(MalformedEscape, match="at character 13 "):
        read_typed("10.1000/100 % sure")
