"""The forms in which people write DOI names: labels, URNs, URLs and URLs rewritten by proxies."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote_to_bytes

from doi_names.errors import InvalidName, MalformedEscape, NotADOI, NotUTF8
from doi_names.name import DOIName, HandleName
from doi_names.repair.prefix import SITE_PAGES

_MALFORMED: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
#: Text of unreserved characters alone (RFC 3986, section 2.3), which has nothing to encode.
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9._~-]*")


def decode(raw: bytes | str) -> str:
    """Decode every escape once; "+" stays "+". Raises MalformedEscape and NotUTF8, each with the character's place."""
    # A lone surrogate becomes bytes that are not UTF-8, which are refused below.
    data = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    if b"%" in data:
        if broken := _MALFORMED.search(data):
            raise _malformed(data, broken.start())
        data = unquote_to_bytes(data)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        place = len(data[: error.start].decode("utf-8")) + 1
        raise NotUTF8(f"The byte 0x{data[error.start]:02X} at character {place} is not UTF-8.") from error


def encode(text: str, literal: bytes | frozenset[int] = b"") -> str:
    """Encode the UTF-8 bytes of `text` except the unreserved characters (RFC 3986, section 2.3) and `literal`.

    `literal` holds ASCII bytes. Raises NotUTF8 for a lone surrogate.
    """
    if _UNRESERVED.fullmatch(text):
        return text
    try:
        # `urllib.parse.quote` reads `literal` anew in each call, and a page needs ten calls.
        return text.encode().decode("latin-1").translate(_list_escapes(literal))
    except UnicodeEncodeError as error:
        raise NotUTF8(f"The surrogate at character {error.start + 1} cannot be written in UTF-8.") from error


@lru_cache(maxsize=16)
def _list_escapes(literal: bytes | frozenset[int]) -> tuple[str, ...]:
    return tuple(chr(i) if i in literal or _UNRESERVED.fullmatch(chr(i)) else f"%{i:02X}" for i in range(256))


def _malformed(data: bytes, start: int) -> MalformedEscape:
    place = len(data[:start].decode("utf-8", "replace")) + 1
    return MalformedEscape(
        f'The "%" at character {place} is not followed by two hexadecimal digits; write a literal "%" as "%25".'
    )


#: Trimmed at both ends. It includes blanks that str.strip() keeps, such as ZWSP and the byte order mark. Of the control
#: characters, only those with the property White_Space are blanks (The Unicode Standard, PropList.txt).
BLANKS: Final = "".join(
    chr(code)
    for first, last in (
        (0x09, 0x0D), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200D),
        (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x2060), (0x3000, 0x3000), (0xFEFF, 0xFEFF), (0xFFFE, 0xFFFF),
    )
    for code in range(first, last + 1)
)  # fmt: skip
#: Limit of a text that is read alone: in the form, by `/api/parse`, and by a tool for assistants.
MAX_TYPED_CHARACTERS: Final = 4_096
#: Longer paths are not cached.
_MAX_CACHED_BYTES: Final = 256

_CASELESS: Final = re.IGNORECASE | re.ASCII
_LABEL: Final = re.compile(r"(?:doi|hdl):|info:(?:doi|hdl)/|(urn:(?:doi|hdl|eidr):)", _CASELESS)
#: The host of a resolver, also as a library's proxy rewrites it, with dots or hyphens:
#: doi.org, doi-org.ezproxy.x.edu, 0-dx.doi.org.lib.y.edu.
_URL: Final = re.compile(
    r"""(?:https?:/++)?
        (?: (?:(?:www|dx)\.)?doi\.org | hdl\.handle\.net
          | (?:[0-9]{1,2}-)? (?: (?:(?:www|dx)[.-])?doi[.-]org | hdl[.-]handle[.-]net ) (?:\.[a-z0-9-]{1,63}){1,20}
        )
        (?: :[0-9]{1,5} )?
        (?: /++ | \Z )""",
    _CASELESS | re.VERBOSE,
)
#: An empty fragment after the last hyphen of a SICI is its check character (ANSI/NISO Z39.56, appendix A).
_QUERY_OR_FRAGMENT: Final = re.compile(r"(?:\?|(?<!;[0-9]-)#|#(?=\w)).*", re.DOTALL)
#: A path that is already a DOI name: printable ASCII without escapes or blanks.
_LITERAL_PATH: Final = re.compile(rb"/(10\.[!-$&-~]+)")
#: What was undone to find a name in a text.
Rule = Literal["trimmed", "leading-slash", "url", "query", "label", "urn-colon", "percent-decoded"]


class BareName(NamedTuple):
    """The text of a name without its presentation form, and the rules that were applied, in their order."""

    text: str
    rules: tuple[Rule, ...] = ()


def read(text: str) -> HandleName:
    """The name in percent-decoded `text`, without surrounding blanks, one URL form and one label.

    Raises EmptyName, NameTooLong and ForbiddenCodePoint.
    """
    return HandleName(strip_form(text).text)


def strip_form(text: str) -> BareName:
    """Remove surrounding blanks, one URL form and one label from percent-decoded `text`."""
    rules: list[Rule] = []
    trimmed = _strip_blanks(text, rules)
    rest = _without_url(trimmed, rules)
    bare = _without_label(rest, rules)
    if rest is trimmed and bare is not rest:
        # "doi: https://doi.org/10.1000/182": the other order of the two.
        bare = _without_url(bare, rules)
    return BareName(bare, tuple(rules))


def read_path(raw: bytes) -> HandleName:
    """The name in a raw request path without its query: decoded once, leading slashes removed, then read.

    Raises MalformedEscape and NotUTF8 besides the errors of read.
    """
    return _read_path_cached(raw) if len(raw) <= _MAX_CACHED_BYTES else _read_path(raw)


def read_exact(raw: bytes) -> HandleName:
    """The name in percent-encoded bytes: decoded once and otherwise unchanged. Raises as read_path."""
    return _read_exact_cached(raw) if len(raw) <= _MAX_CACHED_BYTES else _read_exact(raw)


def _read_exact(raw: bytes) -> HandleName:
    return HandleName(decode(raw))


def _read_path(raw: bytes) -> HandleName:
    if literal := _LITERAL_PATH.fullmatch(raw):
        return HandleName(literal[1].decode("ascii"))
    return read(decode(raw).lstrip("/"))


#: The names of popular paths. Most requests are for few names.
_read_path_cached = lru_cache(maxsize=512)(_read_path)
_read_exact_cached = lru_cache(maxsize=512)(_read_exact)


def read_typed(text: str) -> HandleName:
    """The name in what a person typed or pasted, raw or percent-encoded; "%" always begins an escape.

    The query or fragment of a pasted URL is not part of the name. In a bare name, "?" and "#" are. Raises as read_path.
    """
    return HandleName(strip_typed_form(text).text)


def strip_typed_form(text: str) -> BareName:
    """Remove what is not part of the name from what a person typed, as read_typed does.

    Raises MalformedEscape and NotUTF8.
    """
    rules: list[Rule] = []
    typed = _strip_blanks(text, rules)
    if _URL.match(typed) or _URL.match(_without_label(typed, [])):
        typed = _undo("query", typed, _QUERY_OR_FRAGMENT.sub("", typed), rules)
    typed = _undo("percent-decoded", typed, decode(typed), rules)
    typed = _undo("leading-slash", typed, typed.lstrip("/"), rules)
    # A resolver reads the path of its URL as any text: https://doi.org/https://doi.org/10.1000/182.
    bare = strip_form(_without_url(typed, rules))
    # A blank can stand on both sides of an escape, so "trimmed" can occur twice.
    return BareName(bare.text, tuple(dict.fromkeys((*rules, *bare.rules))))


def _undo(rule: Rule, before: str, after: str, rules: list[Rule]) -> str:
    """The text after a rule. The rule is recorded if it changed the text."""
    if after != before:
        rules.append(rule)
    return after


def _strip_blanks(text: str, rules: list[Rule]) -> str:
    return _undo("trimmed", text, text.strip(BLANKS), rules)


def _without_url(text: str, rules: list[Rule]) -> str:
    found = _URL.match(text)
    if not found:
        return text
    rules.append("url")
    return text[found.end() :].strip(BLANKS)


def _without_label(text: str, rules: list[Rule]) -> str:
    label = _LABEL.match(text)
    if not label:
        return text
    rules.append("label")
    rest = text[label.end() :].strip(BLANKS)
    if label[1]:
        # DOI Handbook, DOI Name Encoding Rules for URL Presentation: in a URN a colon stands for the first slash.
        head, colon, tail = rest.partition(":")
        if colon and "/" not in head:
            rules.append("urn-colon")
            return f"{head}/{tail}"
    return rest


#: RFC 3986, appendix A: the characters that a path segment may contain besides the unreserved ones.
_SEGMENT: Final = b"!$&'()*+,;=:@"

_SCHEME: Final = re.compile("doi:", re.IGNORECASE | re.ASCII)
_NOT_IN_A_PATH: Final = re.compile(r"[^A-Za-z0-9\-._~%!$&'()*+,;=:@/]")
_DOT_SEGMENT: Final = re.compile(r"(?<=/)(\.\.?)/")
_LAST_DOT_SEGMENT: Final = re.compile(r"/(\.\.?)\Z")


def to_uri(name: HandleName) -> str:
    """The "doi" URI of a DOI name ("doi" URI scheme, Syntax). Raises NotADOI for any other name."""
    if not name.is_doi:
        raise NotADOI(f"Only a DOI name has a doi URI; this is not a DOI name: {name.text[:100]}")
    return "doi:" + scheme_path(name)


def from_uri(text: str) -> DOIName:
    """The DOI name of a "doi" URI. Needless escapes and literal slashes in the suffix are accepted.

    Raises NotADOI if `text` is not such a URI or has a query or fragment, and InvalidName if the name is invalid.
    """
    if not (scheme := _SCHEME.match(text)):
        raise NotADOI('A doi URI begins with "doi:".')
    path = text[scheme.end() :]
    if wrong := _NOT_IN_A_PATH.search(path):
        place = scheme.end() + wrong.start() + 1
        if wrong[0] in "?#":
            raise NotADOI(
                f'A doi URI has no query and no fragment: write the "{wrong[0]}" at character {place} '
                f"as {encode(wrong[0])}."
            )
        raise NotADOI(f"A doi URI must encode U+{ord(wrong[0]):04X}, at character {place}, with percent signs.")
    return DOIName.parse(decode(path))


def scheme_path(name: HandleName | str) -> str:
    """The part of a "doi" URI after "doi:": every slash except the first is %2F.

    The handle API accepts this form too ("doi" URI scheme, DOI Name Resolution). A suffix of one or two dots is kept.
    """
    prefix, slash, suffix = str(name).partition("/")
    return encode(prefix, _SEGMENT) + slash + encode(suffix, _SEGMENT)


def url_path(name: HandleName | str) -> str:
    """A name as the path of a URL, without a leading slash. A slash next to a dot segment becomes %2F to protect it.

    Applies all mandatory and recommended encodings (DOI Handbook, DOI Name Encoding Rules for URL Presentation).
    """
    # The bytes that the handbook leaves unencoded in a URL. It recommends to encode "+".
    path = encode(str(name), b"/!$&'()*,;=:@")
    # RFC 3986, section 5.2.4: clients remove "." and ".." segments, also at the end.
    return _LAST_DOT_SEGMENT.sub(r"%2F\1", _DOT_SEGMENT.sub(r"\1%2F", path)) if "/." in path else path


def to_url(name: HandleName | str, base: str = "https://doi.org/") -> str:
    """The URL of a name at a resolver; `base` with or without its last slash."""
    return base.removesuffix("/") + "/" + url_path(name)


def component(name: HandleName | str) -> str:
    """A name as one URL component, with only the unreserved characters unencoded: {hdl} in a 10320/loc template."""
    return encode(str(name))


def template_path(name: HandleName | str) -> str:
    """A name as {hdl:path} in a 10320/loc template: "/ : @ ! $ ( ) * , ; =" are unencoded too."""
    return encode(str(name), b"/:@!$()*,;=")


#: Forms that mark a handle, such as "hdl:".
_HANDLE_LABEL: Final = re.compile(
    r"(?:doi:\s{0,9})?(?:hdl:|(?:info|urn):hdl[/:]|https?:/{1,9}hdl\.handle\.net/)", re.IGNORECASE | re.ASCII
)
_SITE_PAGE: Final = re.compile(SITE_PAGES, re.IGNORECASE)


def read_typed_name(text: str) -> HandleName:
    """The name in a text. Raises InvalidName."""
    return read_with_rules(text)[0]


def is_name(text: str) -> bool:
    """Whether a text is a DOI name or a shortDOI."""
    try:
        name = read_typed_name(text)
    except InvalidName:
        return False
    return name.is_doi or name.is_short_doi


def read_with_rules(text: str) -> tuple[HandleName, tuple[str, ...]]:
    """The name in a text, and the rules that were applied to read it. Raises InvalidName."""
    bare = strip_typed_form(text)
    name = HandleName(bare.text)
    if "url" not in bare.rules or is_marked_handle(text) or _SITE_PAGE.fullmatch(name.text):
        return name, bare.rules
    if expanded := name.expand_short_doi():
        # Expands the short form of a shortDOI in a URL: https://doi.org/abcde is 10/abcde (shortDOI service).
        return expanded, (*bare.rules, "short-doi")
    return name, bare.rules


def is_marked_handle(text: str) -> bool:
    """Whether a text says itself that it is a handle, as "hdl:" does."""
    return _HANDLE_LABEL.match(text.lstrip(BLANKS)) is not None
