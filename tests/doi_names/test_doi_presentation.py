"""The forms that people write, read back into names."""

from __future__ import annotations

import pytest

from doi_names.name import EmptyName, ForbiddenCodePoint, InvalidName, MalformedEscape, NameTooLong, NotUTF8
from doi_names.presentation import BLANKS, read, read_path, read_typed
from tests.table import table

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
