"""Names that follow by rule from another identifier: a number of arXiv, the URL of an article or of a record.

A rule says what a name would be, not that it is registered. A caller looks each of these names up before it offers one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Literal

from doi_names.errors import InvalidName
from doi_names.find_names import FoundName
from doi_names.name import DOIName, HandleName, NameWarning, find_warnings
from doi_names.presentation import decode, is_marked_handle, read_with_rules
from doi_names.repair.exploration import read_if_doi
from doi_names.suggestion import Reading, Suggestion, read_and_suggest

#: The most names that are derived from one text.
MAX_DERIVED: Final = 5

_CASELESS: Final = re.IGNORECASE | re.ASCII
#: An identifier of arXiv since April 2007, and before, without its version (arXiv, Understanding the arXiv identifier).
_ARXIV: Final = r"([0-9]{4}\.[0-9]{4,5}|[a-z]{2,8}(?:-[a-z]{2,4})?(?:\.[A-Z]{2})?/[0-9]{7})(?![0-9])"
#: What every identifier of a rule has: the name of arXiv, or the host or the parameter of a URL. Most names have none.
_IDENTIFIER: Final = re.compile(r"arxiv|eprint|(?<!doi)\.(?:org|com|io)/|pii[/=]", _CASELESS)
#: Journals of Nature whose names have a dot before the number: nmeth.1234, but nature12373 and srep01234.
_DOTTED: Final = re.compile(r"(n(?:bt|cb|chem|chembio|climate|g|geo|i|m|mat|meth|nano|n|photon|phys|smb))([0-9]{2,5})")
_WITH_YEAR: Final = re.compile(r"([a-z]{2,12})((?:19|20)[0-9]{2})([0-9]{1,4})")


@dataclass(frozen=True, slots=True)
class DerivationRule:
    """How an identifier becomes a name: `pattern` finds it, `write` has the name.

    `example` is a registered name and a text from which it follows: the source of the rule, and its test.
    """

    rule: str
    pattern: re.Pattern[str]
    write: Callable[[re.Match[str]], str]
    example: tuple[str, str]


def _rule(rule: str, pattern: str, write: str | Callable[[re.Match[str]], str], name: str, text: str) -> DerivationRule:
    writer = (lambda found: found.expand(write)) if isinstance(write, str) else write
    return DerivationRule(rule, re.compile(pattern, _CASELESS), writer, (name, text))


def _write_nature(found: re.Match[str]) -> str:
    part = found[1].lower()
    if with_year := _WITH_YEAR.fullmatch(part):
        return f"10.1038/{'.'.join(with_year.groups())}"
    dotted = _DOTTED.fullmatch(part)
    return f"10.1038/{dotted[1]}.{dotted[2]}" if dotted else f"10.1038/{part}"


def _write_peerj(found: re.Match[str]) -> str:
    journal, number = found.groups()
    return f"10.7717/peerj{'-' + journal.lower() if journal else ''}.{number}"


RULES: Final = (
    # arXiv, Digital Object Identifiers.
    _rule(
        "arxiv",
        rf"(?:\barxiv\s?:\s{{0,2}}|\barxiv\.org/[a-z]{{3,6}}/|\beprint\s{{0,4}}=\s{{0,4}}[{{\"]\s?){_ARXIV}",
        r"10.48550/arXiv.\1",
        "10.48550/arXiv.1706.03762",
        "arXiv:1706.03762v5 [cs.CL]",
    ),
    # RFC 7669, section 4.
    _rule(
        "rfc",
        r"(?:rfc-editor\.org/(?:rfc|info|in-notes)/|ietf\.org/(?:rfc|doc|doc/html)/)rfc([0-9]{1,5})(?![0-9])",
        lambda found: f"10.17487/RFC{int(found[1]):04}",
        "10.17487/RFC7669",
        "https://www.rfc-editor.org/rfc/rfc7669.html",
    ),
    _rule(
        "zenodo",
        r"\bzenodo\.org/(?:api/)?records?/([0-9]{3,10})(?![0-9])",
        r"10.5281/zenodo.\1",
        "10.5281/zenodo.1000594",
        "https://zenodo.org/record/1000594",
    ),
    _rule(
        "biorxiv",
        r"\b(?:bio|med)rxiv\.org/content/(?:[a-z]{7}/)?early/[0-9/]{11}((?:[0-9]{4}\.[0-9.]{6})?[0-9]{6,8})(?![0-9.])",
        r"10.1101/\1",
        "10.1101/013896",
        "http://biorxiv.org/content/early/2015/01/22/013896",
    ),
    _rule(
        "nature",
        r"\bnature\.com/articles/(s[0-9-]{14,15}-[0-9a-z]{1,2}|[0-9]{5,7}[a-z]?0?|[a-z]{1,12}[0-9]{3,9})(?![0-9a-z.-])",
        _write_nature,
        "10.1038/hdy.2013.26",
        "https://www.nature.com/articles/hdy201326",
    ),
    _rule(
        "elife",
        r"\belifesciences\.org/(?:articles|reviewed-preprints|content/[0-9]{1,3}/e?)/?([0-9]{5,6})(?![0-9])",
        r"10.7554/eLife.\1",
        "10.7554/eLife.01567",
        "https://elifesciences.org/articles/01567",
    ),
    _rule(
        "peerj",
        r"\bpeerj\.com/articles/(?:(cs|pchem|achem|ochem|ichem|matsci)-)?([0-9]{1,5})(?![0-9a-z-])",
        _write_peerj,
        "10.7717/peerj-cs.86",
        "https://peerj.com/articles/cs-86/",
    ),
    _rule(
        "peerj-preprint",
        r"\bpeerj\.com/preprints/([0-9]{1,5}(?:v[0-9]{1,2})?)(?![0-9a-z-])",
        r"10.7287/peerj.preprints.\1",
        "10.7287/peerj.preprints.1v1",
        "https://peerj.com/preprints/1v1",
    ),
    _rule(
        "figshare",
        r"\bfigshare\.com/articles/(?:[a-z_]{2,30}/)?(?:[^/\s?#]{1,200}/)?([0-9]{5,9})(?![0-9])",
        r"10.6084/m9.figshare.\1",
        "10.6084/m9.figshare.828487",
        "https://figshare.com/articles/dataset/A_title/828487",
    ),
    _rule(
        "osf",
        r"\bosf\.io/([0-9a-z]{5})(?![0-9a-z])",
        lambda found: f"10.17605/OSF.IO/{found[1].upper()}",
        "10.17605/OSF.IO/EZCUJ",
        "https://osf.io/ezcuj/",
    ),
    _rule(
        "ssrn",
        r"\bssrn\.com/(?:abstract=|sol3/papers\.cfm\?abstract_id=)([0-9]{4,8})(?![0-9])",
        r"10.2139/ssrn.\1",
        "10.2139/ssrn.1809741",
        "http://www.ssrn.com/abstract=1809741",
    ),
    _rule(
        "nber",
        r"\bnber\.org/papers/([wth][0-9]{1,5})(?![0-9])",
        r"10.3386/\1",
        "10.3386/w13098",
        "http://www.nber.org/papers/w13098.pdf",
    ),
    _rule(
        "jstor",
        r"\bjstor\.org/(?:stable|pss)/([0-9]{4,9})(?![0-9])",
        r"10.2307/\1",
        "10.2307/1929908",
        "http://www.jstor.org/stable/1929908?origin=crossref",
    ),
    _rule(
        "acm",
        r"\b(?:portal|dl)\.acm\.org/citation\.cfm\?(?:do)?id=([0-9]{4,8}\.[0-9]{4,8})(?![0-9])",
        r"10.1145/\1",
        "10.1145/208164.208166",
        "http://portal.acm.org/citation.cfm?doid=208164.208166",
    ),
    _rule(
        "hindawi",
        r"\bhindawi\.com/journals/[a-z.]{2,12}/((?:19|20)[0-9]{2}/[0-9]{5,8})(?![0-9])",
        r"10.1155/\1",
        "10.1155/2008/351845",
        "http://www.hindawi.com/journals/jchem/2008/351845/",
    ),
    # Elsevier, Publisher Item Identifier: the number of an article without its punctuation.
    _rule(
        "pii",
        r"(?:/pii/|[?&]_?pii=)(S?[0-9]{4})([0-9]{3}[0-9X])([0-9]{2})([0-9]{5})([0-9X])(?![0-9A-Z])",
        r"10.1016/\1-\2(\3)\4-\5",
        "10.1016/0006-291X(81)91703-4",
        "https://linkinghub.elsevier.com/retrieve/pii/0006291X81917034",
    ),
    _rule(
        "rsc",
        r"\brsc\.org/(?:[a-z]{2}/)?content/[a-z]{7,14}/[0-9]{4}/[a-z]{2}/([a-z][0-9][a-z]{2}[0-9]{5}[0-9a-z])(?![0-9a-z])",
        r"10.1039/\1",
        "10.1039/c5cc05468k",
        "https://pubs.rsc.org/en/content/articlelanding/2015/cc/c5cc05468k",
    ),
    _rule(
        "iucr",
        r"\biucr\.org/cgi-bin/paper\?(S[0-9]{15}[0-9X])(?![0-9])",
        r"10.1107/\1",
        "10.1107/S0021889882011996",
        "http://scripts.iucr.org/cgi-bin/paper?S0021889882011996",
    ),
    _rule(
        "cambridge",
        r"\bcambridge\.org/(?:abstract_|core/product/identifier/)(S[0-9]{15}[0-9X])(?![0-9])",
        r"10.1017/\1",
        "10.1017/S0022112097005624",
        "http://www.journals.cambridge.org/abstract_S0022112097005624",
    ),
    _rule(
        "acl",
        r"\baclanthology\.org/([A-Z][0-9]{2}-[0-9]{4}|20[0-9]{2}\.[a-z0-9]{2,20}-[a-z0-9]{1,12}\.[0-9]{1,4})(?![0-9])",
        r"10.18653/v1/\1",
        "10.18653/v1/2022.acl-long.568",
        "https://aclanthology.org/2022.acl-long.568.pdf",
    ),
    _rule(
        "copernicus",
        r"\b([a-z]{2,6})\.copernicus\.org/articles/([0-9]{1,3})/([0-9]{1,5})/((?:19|20)[0-9]{2})(?![0-9])",
        r"10.5194/\1-\2-\3-\4",
        "10.5194/acp-19-3515-2019",
        "https://acp.copernicus.org/articles/19/3515/2019/",
    ),
    _rule(
        "preprints",
        r"\bpreprints\.org/manuscript/([0-9]{6}\.[0-9]{4})/v([0-9]{1,2})(?![0-9])",
        r"10.20944/preprints\1.v\2",
        "10.20944/preprints202003.0001.v1",
        "https://www.preprints.org/manuscript/202003.0001/v1",
    ),
    _rule(
        "research-square",
        r"\bresearchsquare\.com/article/(rs-[0-9]{4,9}/v[0-9]{1,2})(?![0-9])",
        r"10.21203/rs.3.\1",
        "10.21203/rs.3.rs-15718/v1",
        "https://www.researchsquare.com/article/rs-15718/v1",
    ),
    _rule(
        "bhl",
        r"\bbiodiversitylibrary\.org/bibliography/([0-9]{1,7})(?![0-9])",
        r"10.5962/bhl.title.\1",
        "10.5962/bhl.title.63904",
        "http://www.biodiversitylibrary.org/bibliography/63904",
    ),
)


def derive(text: str) -> tuple[FoundName, ...]:
    """The names that follow from identifiers in a text, in its order, MAX_DERIVED at most.

    Each has the confidence `derived`: it may not be registered.
    """
    if _IDENTIFIER.search(text) is None:
        return ()
    found = [
        FoundName(
            DOIName.parse(rule.write(match)), match.start(), match.end(), match[0], "derived", rule.rule, (rule.rule,)
        )
        for rule in RULES
        for match in islice(rule.pattern.finditer(text), MAX_DERIVED)
    ]
    names = {name.name: name for name in sorted(found, key=lambda name: -name.start)}
    return tuple(sorted(names.values(), key=lambda name: name.start)[:MAX_DERIVED])


#: The most names that are listed for one name.
MAX_VARIANTS: Final = 8
#: Longer names have too many places to look like another name.
_MAX_CHARACTERS: Final = 256

#: Letters beside a digit that look like digits, as text recognition and typing confuse them.
_LETTERS_BESIDE_DIGIT: Final = re.compile(r"(?<=[0-9])[OoIl]+|[OoIl]+(?=[0-9])")
#: A part of a name that is a number but for such letters: with other letters beside them, nothing shows a slip.
_NUMBER: Final = re.compile(r"(?<![0-9A-Za-z])[0-9OoIl]{2,}(?![0-9A-Za-z])")
_AS_DIGIT: Final = str.maketrans("OoIl", "0011")
#: What looks like what, in the order in which it is tried: rn and m, a letter and a digit.
_LOOK_ALIKE: Final = re.compile(r"rn|m|[OoIl01]")
_ALIKE: Final = {"rn": ("m",), "m": ("rn",), "O": ("0",), "o": ("0",), "I": ("1", "l"), "l": ("1", "I")} | {
    "0": ("O",),
    "1": ("l", "I"),
}


def list_variants(name: HandleName) -> tuple[Suggestion, ...]:
    """The names that a name may have been before one slip: MAX_VARIANTS at most, the likeliest first.

    None of them is known to be registered. `rule` is the slip that each undoes.
    """
    if not name.is_doi or len(name.text) > _MAX_CHARACTERS:
        return ()
    return _read(name, _list_texts(name.prefix, name.suffix or ""))


def list_visible_slips(name: HandleName) -> tuple[Suggestion, ...]:
    """Those variants whose slip the name itself shows: letters in a number."""
    if not name.is_doi or len(name.text) > _MAX_CHARACTERS:
        return ()
    return _read(name, iter([_with_digits_in_numbers(name.prefix, name.suffix or "")]))


def _read(name: HandleName, texts: Iterator[tuple[str, str]]) -> tuple[Suggestion, ...]:
    found: dict[str, Suggestion] = {}
    for text, rule in texts:
        variant = read_if_doi(text) if text != name.text else None
        if variant is not None and variant != name:
            found.setdefault(variant.key, Suggestion(variant, rule))
        if len(found) == MAX_VARIANTS:
            break
    return tuple(found.values())


def _with_digits_in_numbers(prefix: str, suffix: str) -> tuple[str, str]:
    return f"{prefix}/{_NUMBER.sub(_write_digits, suffix)}", "look-alike"


def _write_digits(found: re.Match[str]) -> str:
    """A number without its letters, if it has more digits than letters."""
    letters = sum(character.isalpha() for character in found[0])
    return found[0].translate(_AS_DIGIT) if 2 * letters < len(found[0]) else found[0]


def _list_texts(prefix: str, suffix: str) -> Iterator[tuple[str, str]]:
    if " " in suffix:
        yield f"{prefix}/{suffix.replace(' ', '_')}", "underscore"
    if "#" in suffix:
        yield f"{prefix}/{suffix.partition('#')[0]}", "query-or-fragment"
    # Their agencies registered a part of the names with two slashes.
    if prefix in ("10.1024", "10.1027", "10.1037") and not suffix.startswith("/"):
        yield f"{prefix}//{suffix}", "two-slashes"
    yield _with_digits_in_numbers(prefix, suffix)
    yield f"{prefix}/{_LETTERS_BESIDE_DIGIT.sub(lambda found: found[0].translate(_AS_DIGIT), suffix)}", "look-alike"
    if not suffix.endswith("/"):
        yield f"{prefix}/{suffix}/", "missing-slash-at-end"
    if "-" in suffix:
        yield prefix + "/" + suffix.replace("-", "\u2010"), "dash"
    for found in islice(_LOOK_ALIKE.finditer(suffix), MAX_VARIANTS):
        for other in _ALIKE[found[0]]:
            yield f"{prefix}/{suffix[: found.start()]}{other}{suffix[found.end() :]}", "look-alike"


#: Characters of a text in which other identifiers are searched.
_MAX_SEARCHED: Final = 512


@dataclass(frozen=True, slots=True)
class Candidates:
    """Names that may be meant. A repair undoes an error that the text shows; a guess is offered only if it exists."""

    best: Reading | None
    repairs: tuple[Suggestion, ...]
    guesses: tuple[Suggestion, ...]


def read_candidates(
    text: str,
    name: HandleName | None,
    own_hosts: frozenset[str] = frozenset(),
    *,
    longer: Sequence[Suggestion] = (),
    derived: Sequence[FoundName] = (),
) -> Candidates:
    """The likeliest reading of a text, its repairs and its guesses.

    `name` is the DOI name or shortDOI that the text is, None if it is neither. The text may be a part of another one:
    `longer` are repairs by what follows it, and `derived` are names that follow by rule from the reference around it.
    """
    shown = text if name is not None else _decode(text)
    best, repairs = read_and_suggest(shown, name, own_hosts=own_hosts)
    repairs += _without(repairs, longer)
    # Of a name with an error, the repaired name is looked at.
    variants = list_variants(best.name) if best is not None else () if name is None else list_variants(name)
    return Candidates(
        best, repairs, _without(repairs, [*_list_derived(derived or derive(shown[:_MAX_SEARCHED])), *variants])
    )


def suggest_unchecked(
    text: str, name: HandleName | None, own_hosts: frozenset[str] = frozenset()
) -> tuple[Reading | None, tuple[Suggestion, ...]]:
    """The likeliest reading, and the candidates that are offered without a look-up.

    These are the repairs, the names that follow by rule, and those with a slip that the text shows. Nearly every name
    has others that look alike, and only a look-up decides which of them was meant.
    """
    shown = text if name is not None else _decode(text)
    best, repairs = read_and_suggest(shown, name, own_hosts=own_hosts)
    slips = () if name is None else list_visible_slips(name)
    return best, (*repairs, *_without(repairs, [*_list_derived(derive(shown[:_MAX_SEARCHED])), *slips]))


def _list_derived(names: Sequence[FoundName]) -> list[Suggestion]:
    return [Suggestion(found.name, found.rule or "", "derived") for found in names]


def _without(known: Sequence[Suggestion], others: Sequence[Suggestion]) -> tuple[Suggestion, ...]:
    keys = {suggestion.doi.key for suggestion in known}
    return tuple(other for other in others if other.doi.key not in keys)


def _decode(text: str) -> str:
    """In a text that is not a name, "%" begins an escape too, unless one of them is not an escape."""
    try:
        return decode(text)
    except InvalidName:
        return text


Kind = Literal["doi", "short_doi", "handle", "prefix", "not_a_doi"]

#: Naming authorities in use begin with a number. Without this rule "and/or" would be a handle.
_NUMBERED_PREFIX: Final = re.compile(r"[0-9]+(?:\.[^\s./]+)*")
_ANY_PREFIX: Final = re.compile(r"[^\s./]+(?:\.[^\s./]+)*")
#: The only plus sign of a name: at its end, before the "<" of a SICI, or between two letters or digits.
_PLUS_IN_NAME: Final = re.compile(r"[^+]*(?:\+|\+<[^+]*|(?<=\w)\+\w[^+]*)")


@dataclass(frozen=True, slots=True)
class ParsedText:
    """What a text is.

    A position in a message counts the characters of the name, decoded and without blanks, label and URL. `name` is
    None if the text is not a name of any kind. `rules` are the steps that read it, in their order.
    `message` is the reason why it is not a DOI name, or None. `best` is the likeliest reading.
    """

    text: str
    kind: Kind
    name: HandleName | None
    rules: tuple[str, ...]
    warnings: tuple[NameWarning, ...]
    suggestions: tuple[Suggestion, ...]
    message: str | None
    best: Reading | None = None

    @property
    def doi(self) -> HandleName | None:
        """The DOI name or the shortDOI."""
        return self.name if self.kind in ("doi", "short_doi") else None


def parse(text: str, *, own_hosts: frozenset[str] = frozenset()) -> ParsedText:
    """Say what `text` is. It is read as in the form: "%" always begins an escape. Raises nothing.

    `own_hosts` are the hosts of this resolver, for suggestions.
    """
    try:
        name, rules = read_with_rules(text)
    except InvalidName as error:
        best, suggestions = suggest_unchecked(text, None, own_hosts)
        return ParsedText(text, "not_a_doi", None, (), (), suggestions, error.message, best)
    is_handle = is_marked_handle(text)
    kind = _classify(name, _ANY_PREFIX if is_handle else _NUMBERED_PREFIX)
    warnings = find_warnings(name)
    if kind in ("doi", "short_doi"):
        best, suggestions = suggest_unchecked(text, name, own_hosts)
        return ParsedText(text, kind, name, rules, warnings, suggestions, None, best)
    best, suggestions = suggest_unchecked(text, None, own_hosts)
    read_name = None if kind == "not_a_doi" else name
    return ParsedText(text, kind, read_name, rules, warnings, suggestions, _explain(name), best)


def choose_reading(blanks: ParsedText, plus: ParsedText, *, is_form: bool) -> ParsedText:
    """What a query with "+" means. `blanks` reads each as a blank, as encoders of forms write it, `plus` as itself.

    Such an encoder (WHATWG URL, section 5.2) escapes a slash too: then it `is_form`, and "+" is a blank. Elsewhere
    the plus sign wins if it is part of one whole name, such as 10.1002/a+b. The other reading becomes a suggestion.
    """
    is_name = not is_form and plus.doi is not None and _PLUS_IN_NAME.fullmatch(plus.text) is not None
    chosen, other = (plus, blanks) if is_name else (blanks, plus)
    if other.best is None or (chosen.best is not None and chosen.best.name.key == other.best.name.key):
        return chosen
    remedy = "a plus sign here; encode a blank as %20" if is_name else "a blank here; encode a plus sign as %2B"
    warning = NameWarning("plus-sign", f'A "+" in the query is {remedy}.')
    suggestion = Suggestion(other.best.name, "plus-sign")
    return replace(chosen, warnings=(*chosen.warnings, warning), suggestions=(suggestion, *chosen.suggestions))


def unreadable(text: str, message: str) -> ParsedText:
    """An item of a list that cannot be read: its beginning, and the reason."""
    return ParsedText(text, "not_a_doi", None, (), (), (), message)


def _classify(name: HandleName, handle_prefix: re.Pattern[str]) -> Kind:
    if name.is_doi:
        return "doi"
    if name.is_short_doi:
        return "short_doi"
    if name.is_prefix:
        return "prefix"
    # Prefixes of DOI names. A malformed one is not a handle of another kind.
    is_other = name.prefix.partition(".")[0] != "10"
    return "handle" if name.suffix and is_other and handle_prefix.fullmatch(name.prefix) else "not_a_doi"


def _explain(name: HandleName) -> str:
    """Why a name is not a DOI name."""
    try:
        DOIName.parse(name.text)
    except InvalidName as error:
        short = name.expand_short_doi()
        return f"{error.message} If it is a shortDOI, write {short}." if short is not None else error.message
    raise AssertionError(name)
