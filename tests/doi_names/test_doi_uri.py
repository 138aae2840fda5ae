"""The "doi" URI scheme, the URL presentation, and the forms inside 10320/loc templates."""

from __future__ import annotations

import pytest
from ada_url import URL

from doi_names.name import (
    DOIName,
    EmptyName,
    ForbiddenCodePoint,
    HandleName,
    InvalidName,
    MalformedEscape,
    NotADOI,
    NotUTF8,
)
from doi_names.presentation import component, decode, from_uri, scheme_path, template_path, to_uri, to_url, url_path
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
