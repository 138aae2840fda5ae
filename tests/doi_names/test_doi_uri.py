"""The "doi" URI scheme, the URL presentation, and the forms inside 10320/loc templates."""

from __future__ import annotations

import unicodedata

import pytest
from ada_url import URL
from hypothesis import given, settings
from hypothesis import strategies as st

from doi_names.derived import parse
from doi_names.errors import EmptyName, ForbiddenCodePoint, InvalidName, MalformedEscape, NotADOI, NotUTF8
from doi_names.name import (
    MAX_NAME_BYTES,
    MAX_WARNINGS,
    CodePoint,
    DOIName,
    HandleName,
    find_warnings,
    first_not_graphic,
    fold,
    questionable,
)
from doi_names.presentation import (
    BLANKS,
    component,
    decode,
    encode,
    from_uri,
    read,
    read_path,
    read_typed,
    scheme_path,
    template_path,
    to_uri,
    to_url,
    url_path,
)
from doi_names.repair import ends
from doi_names.suggestion import MAX_SUGGESTIONS, read_and_suggest
from tests.examples import examples
from tests.table import table

SCHEME = 'The "doi" URI Scheme, Syntax'
RFC_3986 = "RFC 3986, appendix A, pchar"
HANDBOOK = "DOI Handbook, DOI Name Encoding Rules for URL Presentation"

URIS = [
    # name, URI, source
    ("10.1000/182", "doi:10.1000/182", SCHEME),
    ("10.1103/PhysRevLett.59.381", "doi:10.1103/PhysRevLett.59.381", SCHEME),
    ("10.5594/SMPTE.ST2067-21.2020", "doi:10.5594/SMPTE.ST2067-21.2020", SCHEME),
    ("10.6338/JDA.202212/SP_17(4).0000", "doi:10.6338/JDA.202212%2FSP_17(4).0000", SCHEME),
    (
        "10.26321/Á.GUTIÉRREZ.ZARZA.02.2018.03",
        "doi:10.26321/%C3%81.GUTI%C3%89RREZ.ZARZA.02.2018.03",
        SCHEME,
    ),
    ("10.1000/-._~!$&'()*+,;=:@", "doi:10.1000/-._~!$&'()*+,;=:@", RFC_3986),
    ('10.1000/%"#? <>{}^[]`|\\', "doi:10.1000/%25%22%23%3F%20%3C%3E%7B%7D%5E%5B%5D%60%7C%5C", RFC_3986),
    ("10.1000//182/", "doi:10.1000/%2F182%2F", SCHEME),
    ("10.1000.10/a", "doi:10.1000.10/a", SCHEME),
    ("10.1000/\U0001f600", "doi:10.1000/%F0%9F%98%80", SCHEME),
]


@table(("name", "uri", "source"), URIS)
def test_a_doi_name_and_its_uri(name: str, uri: str, source: str) -> None:
    assert to_uri(DOIName.parse(name)) == uri
    assert from_uri(uri).text == name
    assert scheme_path(name) == uri.removeprefix("doi:")


@pytest.mark.parametrize("name", ["10.1000", "10/abcde", "0.NA/10.1000", "foo"])
def test_only_a_doi_name_has_a_doi_uri(name: str) -> None:
    with pytest.raises(NotADOI):
        to_uri(HandleName(name))


@table(
    ("uri", "error", "says"),
    [
        ("doi:10.1000/182?x", NotADOI, 'no query and no fragment: write the "?" at character 16 as %3F'),
        ("doi:10.1000/182#x", NotADOI, 'no query and no fragment: write the "#" at character 16 as %23'),
        ("doi:10.1000/1 2", NotADOI, "U+0020, at character 14, with percent signs"),
        ("doi:10.1000/ä", NotADOI, "U+00E4, at character 13, with percent signs"),
        ("doi:10.1000/<", NotADOI, "U+003C, at character 13, with percent signs"),
        ("10.1000/182", NotADOI, 'begins with "doi:"'),
        ("urn:doi:10.1000/182", NotADOI, 'begins with "doi:"'),
        ("dO\u0131:10.1000/182", NotADOI, 'begins with "doi:"'),
        ("doi:doi:10.1000/182", NotADOI, 'begins with "10."'),
        ("doi:", EmptyName, ""),
        ("doi:10.1000/%zz", MalformedEscape, "at character 9 "),
        ("doi:10.1000/%C4", NotUTF8, "0xC4"),
        ("doi:10.1000/%00", ForbiddenCodePoint, "U+0000"),
        ("doi:10.1000/%C2%AD", ForbiddenCodePoint, "U+00AD SOFT HYPHEN"),
    ],
)
def test_text_that_is_not_a_doi_uri_is_refused(uri: str, error: type[InvalidName], says: str) -> None:
    with pytest.raises(error) as caught:
        from_uri(uri)
    assert says in caught.value.message


EQUIVALENCE = [
    # one, other, equivalent, source
    ("doi:10.1000/abc", "DOI:10.1000/ABC", True, "RFC 3986, section 6.2.2.1, and the scheme's Equivalence"),
    ("doi:10.1000/182", "doi:10.1000/%31%382", True, "scheme, Equivalence: decoded first"),
    ("doi:10.1000/a%2Fb", "doi:10.1000/a%2fb", True, "scheme, Equivalence: decoded first"),
    ("doi:10.1000/a%2Fb", "doi:10.1000/a/b", True, "scheme, Equivalence: decoded first"),
    ("doi:10.1000%2F182", "doi:10.1000/182", True, "scheme, Equivalence: decoded first"),
    ("doi:10.1000/%C3%81", "doi:10.1000/A%CC%81", False, "scheme, Syntax, note 1"),
    ("doi:10.1000/%C3%A4", "doi:10.1000/%C3%84", False, "scheme, Equivalence, note"),
    ("doi:10.1000/a%2Bb", "doi:10.1000/a+b", True, "scheme, Equivalence: decoded first"),
    ("doi:10.1000/a%252Fb", "doi:10.1000/a%2Fb", False, "scheme, Equivalence: decoded once"),
]


@pytest.mark.parametrize(("one", "other", "same", "source"), EQUIVALENCE)
def test_uris_are_equivalent_when_they_decode_to_one_name(one: str, other: str, same: bool, source: str) -> None:
    assert (from_uri(one) == from_uri(other)) is same


MANDATORY = [("%", "%25"), ('"', "%22"), ("#", "%23"), (" ", "%20"), ("?", "%3F")]
RECOMMENDED = [
    ("<", "%3C"), (">", "%3E"), ("{", "%7B"), ("}", "%7D"), ("^", "%5E"), ("[", "%5B"), ("]", "%5D"),
    ("`", "%60"), ("|", "%7C"), ("\\", "%5C"), ("+", "%2B"),
]  # fmt: skip


@table(("character", "encoded"), [*MANDATORY, *RECOMMENDED])
def test_mandatory_and_recommended_characters_are_encoded_in_a_url(character: str, encoded: str) -> None:
    assert url_path(f"10.1000/a{character}b") == f"10.1000/a{encoded}b"


URLS = [
    # name, URL, source
    ("10.1000/456#789", "https://doi.org/10.1000/456%23789", HANDBOOK),
    ('10.1006/rwei.1999".0001', "https://doi.org/10.1006/rwei.1999%22.0001", HANDBOOK),
    (
        "10.1002/(SICI)1097-4571(199806)49:8<693::AID-ASI4>3.0.CO;2-O",
        "https://doi.org/10.1002/(SICI)1097-4571(199806)49:8%3C693::AID-ASI4%3E3.0.CO;2-O",
        HANDBOOK,
    ),
    ("10.1000/a/b", "https://doi.org/10.1000/a/b", "RFC 3986, section 3.3: a slash is literal in a path"),
    ("10.1000//b", "https://doi.org/10.1000//b", "RFC 3986, section 3.3: a segment may be empty"),
    ("10.1000/Ä\u0085", "https://doi.org/10.1000/%C3%84%C2%85", "RFC 3986, section 2.1, RFC 3629"),
    ("10.1000/a,b;c=d&e:f@g!$'*", "https://doi.org/10.1000/a,b;c=d&e:f@g!$'*", HANDBOOK),
]


@pytest.mark.parametrize(("name", "url", "source"), URLS)
def test_a_name_presented_as_a_url(name: str, url: str, source: str) -> None:
    assert to_url(name) == url


@pytest.mark.parametrize("base", ["https://example.org/doi", "https://example.org/doi/"])
def test_the_base_may_end_with_its_slash_or_not(base: str) -> None:
    assert to_url(HandleName("10.1000/182"), base) == "https://example.org/doi/10.1000/182"


DOT_SEGMENTS = [
    # name, path, source
    ("10.1000/./182", "10.1000/.%2F182", HANDBOOK),
    ("10.1000/../182", "10.1000/..%2F182", HANDBOOK),
    ("10.1000/x/./y", "10.1000/x/.%2Fy", HANDBOOK),
    ("10.1000/x/../y", "10.1000/x/..%2Fy", HANDBOOK),
    ("10.1000/x/.", "10.1000/x%2F.", "RFC 3986, section 5.2.4, step C"),
    ("10.1000/x/..", "10.1000/x%2F..", "RFC 3986, section 5.2.4, step C"),
    ("10.1000/.", "10.1000%2F.", "RFC 3986, section 5.2.4, step C"),
    ("10.1000/..", "10.1000%2F..", "RFC 3986, section 5.2.4, step C"),
    ("10.1000/./../x", "10.1000/.%2F..%2Fx", "RFC 3986, section 5.2.4"),
    ("10.1000/../..", "10.1000/..%2F..", "RFC 3986, section 5.2.4"),
    ("10.1000/.x", "10.1000/.x", "RFC 3986, section 5.2.4: no dot segment"),
    ("10.1000/.../x", "10.1000/.../x", "RFC 3986, section 5.2.4: no dot segment"),
]


@table(("name", "path", "source"), DOT_SEGMENTS)
def test_no_client_can_collapse_a_dot_segment(name: str, path: str, source: str) -> None:
    assert url_path(name) == path
    assert decode(path) == name
    # The parser of the WHATWG URL standard, which browsers follow.
    assert URL(to_url(name)).href == to_url(name)


TEMPLATES = [
    # name, {hdl}, {hdl:path}, source
    ("10.5555/loctmpl", "10.5555%2Floctmpl", "10.5555/loctmpl", "Handle.Net technical manual, 10320/loc"),
    ("10.123/a b#c?d", "10.123%2Fa%20b%23c%3Fd", "10.123/a%20b%23c%3Fd", "Handle.Net technical manual, 10320/loc"),
    (
        "10.1/:@!$()*,;=&'+-._~",
        "10.1%2F%3A%40%21%24%28%29%2A%2C%3B%3D%26%27%2B-._~",
        "10.1/:@!$()*,;=%26%27%2B-._~",
        "RFC 3986, section 2.3",
    ),
    ("10.1/ä%", "10.1%2F%C3%A4%25", "10.1/%C3%A4%25", "RFC 3986, section 2.1"),
]


@pytest.mark.parametrize(("name", "hdl", "path", "source"), TEMPLATES)
def test_a_name_inside_a_template(name: str, hdl: str, path: str, source: str) -> None:
    assert component(HandleName(name)) == hdl
    assert template_path(HandleName(name)) == path


# --- What a name may contain and is likely a mistake -----------------------------------------------------------------


TABLE = [
    ("10.1000/a\u2013b", "look-alike", 'U+2013 EN DASH at character 10 looks like "-".'),
    ("10.1000\u2215182", "look-alike", 'U+2215 DIVISION SLASH at character 8 looks like "/".'),
    ("10.1000/\uff11", "look-alike", 'U+FF11 FULLWIDTH DIGIT ONE at character 9 looks like "1".'),
    ("10.1000/b\u0441", "mixed-scripts", "U+0441 CYRILLIC SMALL LETTER ES at character 10 is Cyrillic"),
    ("10.1000/\u03b1-ray", "mixed-scripts", "U+0072"),
    ("10.1000/a\u00adb", "formatting-character", "U+00AD SOFT HYPHEN at character 10"),
    ("10.1000/a\u2028b", "formatting-character", "U+2028 LINE SEPARATOR at character 10"),
    ("10.1000/\ue000", "private-use-character", "U+E000 at character 9"),
    ("10.1000/\uffff\u0378", "unassigned-code-point", "U+FFFF at character 9"),
    ("10.1000/a/b", "reserved-form", "The suffix begins with one character and a slash, at character 9"),
]


@table(("text", "code", "message"), TABLE)
def test_a_warning_has_a_code_and_a_position(text: str, code: str, message: str) -> None:
    first = find_warnings(HandleName(text))[0]
    assert first.code == code
    assert first.message.startswith(message.partition("U+0072")[0])


@pytest.mark.parametrize(
    "text",
    [
        "10.1000/182",
        "10.1000/ab/c",
        "10.1000/äöß",
        "10.1000/статья",
        "10.1000/日本語-カタカナ-abc",
        "10.1000/µm",
        "10.1002/(SICI)1097-4571(199806)49:8<693::AID-ASI4>3.0.CO;2-O",
        "20.500/a/b",
    ],
)
def test_an_ordinary_name_has_no_warning(text: str) -> None:
    assert find_warnings(HandleName(text)) == ()


@pytest.mark.parametrize("character", ["\u00ad", "\u2013", "\ue000", "\u0301", "\u0441"])
def test_the_warnings_of_a_long_name_are_bounded(character: str) -> None:
    name = HandleName("10.1000/" + character * ((MAX_NAME_BYTES - 8) // len(character.encode())))
    assert len(find_warnings(name)) <= MAX_WARNINGS


# --- Code points: which of them are graphic, which are questionable, and how a message names one ---------------------


#: A character, its general category, its kind (The Unicode Standard, table 2-3), and whether a request may hold it.
KINDS = [
    ("\x00", "Cc", "a control character", False),
    ("\x85", "Cc", "a control character", False),
    ("\ud800", "Cs", "a surrogate", False),
    ("\u00ad", "Cf", "a formatting character", True),
    ("\u2028", "Zl", "a formatting character", True),
    ("\u2029", "Zp", "a formatting character", True),
    ("\ue000", "Co", "a private-use character", True),
    ("\uffff", "Cn", "an unassigned code point", True),
]
#: One character of each major class that is graphic: letter, mark, number, punctuation, symbol, space.
GRAPHIC = ["a", "\u0301", "\u0661", "\u2010", "\u2212", "\u00a0", " "]


@pytest.mark.parametrize(("character", "category", "kind", "is_questionable"), KINDS)
def test_a_code_point_that_is_not_graphic_has_its_kind_and_its_place(
    character: str, category: str, kind: str, is_questionable: bool
) -> None:
    point = first_not_graphic(f"10.1/{character}{character}")
    assert point == CodePoint(character, 6)
    assert (point.category, point.kind) == (category, kind)
    assert [found.place for found in questionable(f"10.1/{character}{character}")] == [6, 7] * is_questionable


@pytest.mark.parametrize("character", GRAPHIC)
def test_letters_marks_numbers_punctuation_symbols_and_spaces_are_graphic(character: str) -> None:
    assert first_not_graphic(character) is None
    assert list(questionable(character)) == []
    assert CodePoint(character, 1).kind == "a graphic character"


@given(st.text())
def test_a_text_is_graphic_where_unicode_says_so(text: str) -> None:
    places = [n for n, c in enumerate(text, 1) if unicodedata.category(c) in {"Cc", "Cs", "Cf", "Zl", "Zp", "Co", "Cn"}]
    first = first_not_graphic(text)
    assert (first.place if first else None) == (places[0] if places else None)


@given(st.characters(codec=None, exclude_categories=()))
def test_the_notation_is_the_number_in_four_or_more_upper_case_digits(character: str) -> None:
    digits = CodePoint(character, 1).notation.removeprefix("U+")
    assert int(digits, 16) == ord(character)
    assert digits == digits.upper()
    assert len(digits) == max(4, len(f"{ord(character):X}"))


def test_a_message_has_the_notation_the_name_if_there_is_one_and_the_place() -> None:
    assert str(CodePoint("\u00ad", 3)) == "U+00AD SOFT HYPHEN at character 3"
    assert str(CodePoint("\x01", 1)) == "U+0001 at character 1"


# --- Percent-encoding over UTF-8 -------------------------------------------------------------------------------------


RFC_3986_DOI_PERCENT = "RFC 3986, section 2"

DECODED = [
    # raw, text, source
    (b"10.1000/182", "10.1000/182", RFC_3986_DOI_PERCENT),
    (b"10.1000%2F182", "10.1000/182", RFC_3986_DOI_PERCENT),
    (b"10.1000%2f182", "10.1000/182", "RFC 3986, section 2.1: the digits have either case"),
    (b"%31%30.1000/182", "10.1000/182", RFC_3986_DOI_PERCENT),
    (b"a+b", "a+b", "RFC 3986: a plus sign is no space in a path"),
    (b"a%2Bb", "a+b", RFC_3986_DOI_PERCENT),
    (b"pct%252F", "pct%2F", "RFC 3986, section 2.4: decoded once"),
    (b"%C3%84%C3%96", "ÄÖ", "RFC 3986, section 2.5"),
    ("Ä%c3%96", "ÄÖ", "RFC 3986, section 2.5"),
    ("ÄÖ".encode(), "ÄÖ", "RFC 3629"),
    (b"", "", RFC_3986_DOI_PERCENT),
    (b"%00", "\x00", RFC_3986_DOI_PERCENT),
]


@table(("raw", "text", "source"), DECODED)
def test_escapes_are_decoded_once(raw: bytes | str, text: str, source: str) -> None:
    assert decode(raw) == text


@pytest.mark.parametrize(
    ("raw", "place"),
    [(b"%", 1), (b"%4", 1), (b"10.5555/%zz", 9), (b"%41%4", 4), (b"%%41", 1), ("ä%g0", 2), (b"%+1", 1), (b"% 1", 1)],
)
def test_a_broken_escape_is_refused_with_its_place(raw: bytes | str, place: int) -> None:
    with pytest.raises(MalformedEscape, match=f"at character {place} "):
        decode(raw)


@pytest.mark.parametrize(
    ("raw", "byte", "place", "source"),
    [
        (b"10.5555/%C4%D6", "0xC4", 9, "RFC 3629: Latin-1 is no UTF-8"),
        (b"%C3%A4%FF", "0xFF", 2, "RFC 3629, section 3: FF never occurs"),
        (b"%C0%AF", "0xC0", 1, "RFC 3629, section 3: overlong form"),
        (b"%ED%A0%80", "0xED", 1, "RFC 3629, section 3: surrogates"),
        (b"a%E2%82", "0xE2", 2, "RFC 3629: cut short"),
        (b"a\xa0", "0xA0", 2, "RFC 3629"),
        ("a\ud800", "0xED", 2, "RFC 3629, section 3: surrogates"),
    ],
)
def test_bytes_that_are_no_utf_8_are_refused_with_their_place(
    raw: bytes | str, byte: str, place: int, source: str
) -> None:
    with pytest.raises(NotUTF8, match=f"{byte} at character {place} "):
        decode(raw)


def test_all_but_the_unreserved_is_encoded_with_upper_case_digits() -> None:
    assert encode("aZ09-._~/ä\u20ac %") == "aZ09-._~%2F%C3%A4%E2%82%AC%20%25"


@pytest.mark.parametrize("literal", [b"/:", frozenset(b"/:")])
def test_literal_characters_stay(literal: bytes | frozenset[int]) -> None:
    assert encode("a/b:c?d", literal) == "a/b:c%3Fd"


def test_a_surrogate_cannot_be_encoded() -> None:
    with pytest.raises(NotUTF8, match="at character 2 "):
        encode("a\ud800")


# --- The SICI inside a name (ANSI/NISO Z39.56-1996) ------------------------------------------------------------------


@table(
    ("name", "is_cut"),
    [
        ("10.1000/0097-4679(199911)55:11<1381::AID-JCLP6>3.0.CO;2-#", False),
        ("10.1000/1520-0477(1996)077<0935:WOTWSM>2.0.CO;2", False),
        ("10.1000/1520-0477(1996)077[0935:WOTWSM]2.0.CO;2", False),
        ("10.1000/1520-0477(1996)077<0935:WOTWSM>2.0.CO;2-", True),
        ("10.1000/1520-0477(1996)077<0935:WOTWSM>2.0.", True),
        ("10.1000/1520-0477(1996)077<0935:WOTWSM>", True),
        ("10.1000/1520-0477(1996)077<0935:WOT", True),
        ("10.1000/A:1-", False),
        ("10.1000/182", False),
    ],
)
def test_a_name_that_ends_inside_a_sici_is_cut(name: str, is_cut: bool) -> None:
    assert ends.is_cut(name) is is_cut


@table(
    "whole",
    [
        # The example of the standard, then names as they are registered.
        "0363-0277(19950315)120:5<>1.0.TX;2-V",
        "1098-108X(199812)24:4<371::AID-EAT4>3.0.CO;2-U",
        "1096-9888(200006)35:6<718::aid-jms999>3.0.co;2-o",
        "1097-0231(20000615)14:11<960::aid-rcm972>3.0.co;2-#",
    ],
)
def test_the_check_character_is_computed_with_modulus_37(whole: str) -> None:
    assert ends.check_character(whole[:-1]) == whole[-1].upper()


def test_a_name_without_its_check_character_may_have_a_number_sign_or_the_computed_one() -> None:
    name = HandleName("10.1002/(SICI)1098-108X(199812)24:4<371::AID-EAT4>3.0.CO;2-")
    assert [(found.doi.text, found.rule) for found in read_and_suggest(name.text, name)[1]] == [
        (f"{name}#", "sici-check"),
        (f"{name}U", "sici-check"),
    ]


# --- What holds for every name and for every input -------------------------------------------------------------------


#: Without a deadline: no test here depends on the speed of the machine.
quick = settings(deadline=None, max_examples=examples(3))

GRAPHIC_CHARACTERS = st.characters(categories=("L", "M", "N", "P", "S", "Zs"))
#: Letters, digits, and characters with a meaning in a URL or a label. With few of them, examples collide and nest.
LIKELY = st.sampled_from(list("aAbBzZ019./:%?#+;,-_<>()[]{}\\|^`\"'&=@ \u00e4\u00c4\u0131\u00df\u00ad\u200b"))
SUFFIX = st.text(
    st.one_of(LIKELY.filter(lambda c: c not in "\u00ad\u200b"), GRAPHIC_CHARACTERS), min_size=1, max_size=40
)
CODE = st.lists(st.text("0123456789aZ", min_size=1, max_size=6), min_size=1, max_size=3).map(".".join)
DOI_NAMES = st.builds(lambda code, suffix: DOIName.parse(f"10.{code}/{suffix}"), CODE, SUFFIX)
PIECES = st.one_of(
    st.sampled_from(
        "doi: urn:doi: info:doi/ https:// http:/ doi.org doi-org.ez.x.edu 10.1000/182 10.1 /abstract".split()
    ),
    st.sampled_from("/ %2F % %25 %C3%A4 %C4 : ? # . .pdf &lt;".split()),
    st.sampled_from([" ", "\u00a0", "\x00", "\ud800"]),
)
ANYTHING = st.one_of(
    st.text(st.one_of(LIKELY, st.characters(categories=None)), max_size=60),
    st.lists(PIECES, max_size=8).map("".join),
)


@quick
@given(DOI_NAMES)
def test_name_to_uri_to_name(name: DOIName) -> None:
    assert from_uri(to_uri(name)).text == name.text
    assert to_uri(name).isascii()


@quick
@given(DOI_NAMES)
def test_name_to_url_path_to_name(name: DOIName) -> None:
    for write in (url_path, component, template_path):
        assert write(name).isascii()
        assert decode(write(name)) == name.text
    if name.text == name.text.strip(BLANKS):
        assert read_path(b"/" + url_path(name).encode("ascii")).text == name.text
        assert read_typed(to_url(name)).text == name.text
        assert read(f"doi:{name.text}").text == name.text


@quick
@given(DOI_NAMES)
def test_no_client_changes_the_url_of_a_name(name: DOIName) -> None:
    """URL is the parser of the WHATWG URL standard, which browsers follow."""
    assert URL(to_url(name)).href == to_url(name)


@quick
@given(DOI_NAMES, DOI_NAMES, st.booleans())
def test_equivalent_uris_have_one_key_and_one_key_has_equivalent_uris(one: DOIName, other: DOIName, twin: bool) -> None:
    if twin:
        other = DOIName.parse(one.text.swapcase() if one.text.isascii() else one.text)
    assert (from_uri(to_uri(one)) == from_uri(to_uri(other))) == (one.key == other.key) == (one == other)
    assert one != other or hash(one) == hash(other)


@quick
@given(ANYTHING)
def test_folding_is_idempotent_and_changes_ascii_letters_only(text: str) -> None:
    folded = fold(text)
    assert fold(folded) == folded
    assert len(folded) == len(text)
    assert all(b == (a.upper() if a.isascii() else a) for a, b in zip(text, folded, strict=True))


@quick
@given(DOI_NAMES)
def test_reading_a_clean_name_changes_nothing(name: DOIName) -> None:
    once = read(name.text)
    assert once.text == name.text.strip(BLANKS)
    assert read(once.text).text == once.text


@quick
@given(st.text(max_size=40), st.binary(max_size=8))
def test_decoding_undoes_encoding(text: str, literal: bytes) -> None:
    kept = bytes(byte for byte in literal if byte < 0x80 and byte != ord("%"))
    try:
        encoded = encode(text, kept)
    except InvalidName:
        return
    assert decode(encoded) == text


@quick
@given(ANYTHING)
def test_no_text_raises_anything_but_our_errors(text: str) -> None:
    for reader in (HandleName, DOIName.parse, from_uri, decode, encode, read, read_typed):
        try:
            reader(text)
        except InvalidName as error:
            assert error.message.isprintable()
            assert error.message.encode()


@quick
@given(st.one_of(st.binary(max_size=60), ANYTHING.map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_no_bytes_raise_anything_but_our_errors(raw: bytes) -> None:
    for reader in (decode, read_path):
        try:
            reader(raw)
        except InvalidName as error:
            assert error.message.encode()


@quick
@given(ANYTHING)
def test_suggestions_are_few_distinct_names_and_never_the_one_that_the_text_has(text: str) -> None:
    parsed = parse(text, own_hosts=frozenset({"doi.org", "a"}))
    found = [each.doi for each in parsed.suggestions]
    assert len(found) <= MAX_SUGGESTIONS
    assert len(set(found)) == len(found)
    assert all(each.is_short_doi or DOIName.parse(each.text) == each for each in found)
    assert parsed.name not in found


@quick
@given(ANYTHING)
def test_a_name_is_not_suggested_in_its_own_place(text: str) -> None:
    try:
        name = HandleName(text)
    except InvalidName:
        return
    assert name not in [each.doi for each in read_and_suggest(name.text, name)[1]]
    assert len(name.questionable(3)) <= min(3, len(name.text))


@quick
@given(DOI_NAMES.filter(lambda name: name.text.isascii() and " " not in name.text and "%" not in name.text))
def test_the_short_route_for_plain_paths_reads_what_the_long_one_reads(name: DOIName) -> None:
    assert read_path(b"/" + name.text.encode("ascii")).text == read_path(b"//" + name.text.encode("ascii")).text
