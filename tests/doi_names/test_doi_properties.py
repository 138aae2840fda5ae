"""What holds for every name and for every input."""

from __future__ import annotations

from ada_url import URL
from hypothesis import given, settings
from hypothesis import strategies as st

from doi_names.derived import parse
from doi_names.errors import InvalidName
from doi_names.name import DOIName, HandleName, fold
from doi_names.presentation import (
    BLANKS,
    component,
    decode,
    encode,
    from_uri,
    read,
    read_path,
    read_typed,
    template_path,
    to_uri,
    to_url,
    url_path,
)
from doi_names.suggestion import MAX_SUGGESTIONS, read_and_suggest
from tests.examples import examples

#: Without a deadline: no test here depends on the speed of the machine.
quick = settings(deadline=None, max_examples=examples(3))

GRAPHIC = st.characters(categories=("L", "M", "N", "P", "S", "Zs"))
#: Letters, digits, and characters with a meaning in a URL or a label. With few of them, examples collide and nest.
LIKELY = st.sampled_from(list("aAbBzZ019./:%?#+;,-_<>()[]{}\\|^`\"'&=@ \u00e4\u00c4\u0131\u00df\u00ad\u200b"))
SUFFIX = st.text(st.one_of(LIKELY.filter(lambda c: c not in "\u00ad\u200b"), GRAPHIC), min_size=1, max_size=40)
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
