"""Whether a text holds a name: what stands before it, the name itself, and what stands after it.

"doi:10.1000/182." has evidence on both sides; "rate 10.1234/day" and "ark:/10.1234/abc" have it against a name. Of
104,745 registered names of a public collection, one has no digit in its suffix, none has more than five digits in its
registrant code, and none divides it. A sample proves no absence, so a label or the URL of a resolver outweighs this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import unescape
from typing import Final
from urllib.parse import unquote

from doi_names.name import USUAL_PREFIX
from doi_names.repair.ends import complete, find_span, is_cut
from doi_names.repair.exploration import Confidence

#: Characters after a name that decide whether it ends there.
MAX_LOOK: Final = 64

_CASELESS: Final = re.IGNORECASE | re.ASCII | re.VERBOSE
#: A label, also as text recognition reads it, or in a tag or an expression: "dol:", doi=", DOI-; a URL of a resolver.
_LABEL: Final = re.compile(
    r"""(?: d[o0][i1l]s?(?:[^0-9A-Za-z]{0,12}|\s(?:number|name|no|nr|is|link|url|id)[^0-9A-Za-z]{0,6})
          | identifier[^0-9A-Za-z]{0,6} | info:(?:doi|hdl)/ | (?:hdl|urn:doi):
        )\Z""",
    _CASELESS,
)
_RESOLVER: Final = re.compile(r"(?:doi[.-]org|hdl[.-]handle[.-]net)[^\s/]{0,80}/*\Z", _CASELESS)
#: The rest of the word in which a name stands.
_GLUED: Final = re.compile(r"[^\s\"'<>()\[\]{}|,;\u2018-\u201f\u3000-\u303f\uff00-\uffef]{1,160}\Z")
#: The mark and the code of a subfield of MARC.
_SUBFIELD: Final = re.compile(r"[$\x1f|\u01c2\u2021][0-9a-z]")
_ATTRIBUTE: Final = re.compile(r"<[a-z][^<>]{0,150}=\Z", re.IGNORECASE)
#: Another scheme or label: "ark:/", "urn:nbn:de:", "bibcode ".
_OTHER: Final = re.compile(
    r"""(?:\A|[^a-z])(?: (?:ark|urn|swh|arxiv|bibcode|is[bsm]n|pmc?(?:id)?|oclc|s3|gs|sftp|smb|ssh|tel)[:.][^\s"'<>()|]*
                      | (?:ark|arxiv|bibcode|is[bm]n|oclc|pmc?id|patent|cas)(?:\sno\.?)?[:.]?\s )\Z""",
    _CASELESS,
)
#: A URL with a place for names, and a parameter that has one.
_PLACE: Final = re.compile(
    r"doi|/(?:articles?|chapters?|books?|papers?|abs|full|pdf|content|works?|citations?|records?|journals?|science)/"
    r"|[?&/](?:[a-z_.]{0,20}id|q|u|[a-z]{0,20}url|query|target|filter)=",
    _CASELESS,
)
#: What counts or measures other things: telephones, systems, prices, rates, and the signs of arithmetic.
_QUANTITY: Final = re.compile(
    r"""(?: (?<![a-z])(?:t[e\u00e9]l(?:[e\u00e9](?:phone|fono)|efon)?|phone|fax|mobile|os\ x|ip|version|v
                      |ratio|rate|price|score|mean|factor|p|kr|eur|usd|gbp|chf)\.?:?\s?
          | (?<![^\s(])[a-z]{1,9}/[a-z]{1,9}\s
          | [$\u00a3\u20ac\u00a5\u00a7%\u00d7\u00b1\u2248=^+]\s{0,2}
        )\Z""",
    re.IGNORECASE | re.VERBOSE,
)
#: What stands before a name in a sentence: a word, as in "see 10.1000/a", or another name.
_CITING: Final = re.compile(
    r"(?: (?<![a-z])(?:see|cf|siehe|vgl|voir|and|or)\.?\s{1,4} | 10\.[0-9]{4,9}/[^\s]{1,24}(?:[,;]\s|\u3001) )\Z",
    _CASELESS,
)
#: A sentence ends with a full stop after a word, an abbreviation is shorter: "title. 10.1000/a", but "Abs. 10.1000/a".
_AFTER_WORD: Final = re.compile(r"[^\W\d_](?:[:]|(?<![^\W\d_]{4})\.)?[^\S\n]{1,4}\Z")

#: What years begin: 10.2021/22, 10.2018/0457. Of 32 registered names each has a longer suffix with letters.
_YEAR: Final = re.compile(r"10\.(?:19|20)[0-9]{2}/(?!.*[A-Za-z].{0,99}[0-9].{5}|.*[0-9].{0,99}[A-Za-z].{5})")
#: A fraction or a short number; several fractions.
_NUMBER: Final = re.compile(r"[0-9]{1,2}|-?[0-9]{1,3}\.[0-9]{1,4}")
_FRACTIONS: Final = re.compile(r"-?[0-9]+\.[0-9]+/|-[0-9]+\.|[0-9]{1,2}\.[0-9]{1,2}\Z")
#: What may as well be a word or a file, and in a path also a word with a number.
_WORD: Final = re.compile(r"(?!osf\.io/)[^0-9]{2,}|[A-Za-z_.-]+\.[a-z]{1,4}[0-9]?", re.IGNORECASE)
_PART: Final = re.compile(r"[A-Za-z]{1,8}[0-9]{0,2}|(?:.*/)?[A-Za-z_-]+\.[a-z]{1,4}[0-9]?")
#: Letters and two digits, or six digits.
_STRONG: Final = re.compile(r"(?=.*[A-Za-z])(?=(?:[^0-9]*[0-9]){2}).{5,}|(?=(?:[^0-9]*[0-9]){6}).*", re.DOTALL)
#: A registrant code that no name has been seen with: six digits and more, or a part that begins with zero.
_UNSEEN: Final = re.compile(r"10\.(?:0[0-9]*|[0-9]{6,}|[0-9]+(?:\.[0-9]+)*\.0[0-9]*)(?:\.[0-9]+)*")
_ARITHMETIC: Final = re.compile(r"\s?[=<>*+\u00d7\u2248]\s?[0-9.]|\s?[NSEW\u00b0](?![a-z])")
#: A place for a name, not a name: zenodo.XXXXXXX, zenodo.#1, 10.1000/%s.
_TEMPLATE: Final = re.compile(r"X{3}|#{2}|(?<!;[0-9])[./_-](?:#|%[sd]?(?![0-9A-F])|\{|\$\{|<[a-z])")
#: Steps that change the prefix, or what separates it from the suffix.
_OF_PREFIX: Final = frozenset(
    (
        "letter-for-digit", "unreadable-character", "cut-prefix", "digit-before", "letter-in-prefix", "comma-for-dot",
        "lost-zero", "missing-slash", "backslash", "missing-10", "missing-dot", "blank-at-slash",
    )
)  # fmt: skip
#: What follows a name in a text that has nothing but it.
_CLOSING: Final = ".,;:!?)]}>\"'/*~$= \t\r\n\\"

#: The signs of 110,816 registered names, and "&", which one publisher uses. Any other is a foreign sign.
_USUAL: Final = re.compile(r"(?:[\w./()<>:;\[\]+#-]|&(?=[0-9]{1,2}_))*", re.ASCII)
#: Another prefix or a URL in a suffix. The name that is meant may begin there, or end before it.
_SECOND: Final = re.compile(r"/10\.[0-9]{4,9}/|://")
#: What may still be part of a name if it follows without a blank: a letter, a digit, a plus sign, a command of LaTeX.
_GOES_ON: Final = re.compile(r"[0-9A-Za-z+]|\\{1,4}[A-Za-z]")
_COMMAND: Final = re.compile(r"\\{1,4}[A-Za-z]{1,20}\*?(?:\{\}|[ ])?([0-9A-Za-z][^\s\"{}\\]{0,60})")
#: The signs among the check characters of base 32 (D. Crockford), which also are footnotes, emphasis and escapes.
_CHECKS: Final = ("*", "~", "$", "=")
_CHECKED: Final = re.compile(r"[*~$=]{1,2}(?=[\s.,;:)\"]|\Z)")
_BASE_32: Final = re.compile(r"(?=.*[A-Z])[0-9A-Z-]+")
#: Letters after a digit are the end of a name, or a word that follows without a blank. Letters from a to f alone are
#: hexadecimal digits.
_LETTERS: Final = re.compile(r"(?<=[0-9])(?:[A-Z]{2,6}|(?![a-f]{1,6}\Z)[a-z]{2,6})\Z")
_WORD_AFTER: Final = re.compile(r"[^\S\r\n]{1,8}\S")
#: A number after a blank. PDF readers write an underscore as a blank.
_NEXT_NUMBER: Final = re.compile(r"[^\S\r\n]{1,4}([0-9]{1,4})(?![0-9A-Za-z/]|\.[0-9])")
#: A line that may go on with the name: not with a capital, a label, a URL, another name or the number of a list.
_NEXT_LINE: Final = re.compile(
    r"(\.?)[^\S\r\n]{0,8}\r?\n[^\S\r\n]{0,8}((?!10\.|doi|https?:|[0-9]{1,3}[.)\]])[0-9a-z(_/<-][^\s,;]{0,40})", re.ASCII
)


def weigh(
    name: str, before: str, after: str, confidence: Confidence, rules: Sequence[str] = (), *, is_encoded: bool = False
) -> Confidence | None:
    """How certain it is that a text means a name. None if it is something else.

    `before` and `after` are what stands around the name, up to some limit, `confidence` is that of the steps that read
    it, and `rules` are these steps. What `is_encoded` was meant as it stands.
    """
    before, is_value = _read_before(before, after)
    if is_value:
        rules = ()
    elif "digit-before" in rules:
        before = before.rstrip("0123456789")
    prefix, _, suffix = name.partition("/")
    tail = f"{after[:12]} ".replace('"', " ").replace("\n", " ").partition(" ")[0] if after else ""
    if not any(map(str.isalnum, suffix)) or suffix[0] == "<" or _TEMPLATE.search(f"/{suffix}{tail}"):
        return None
    may_go_on = after[:1] in _CHECKS and after[:1] != before[-1:]
    if confidence in ("literal", "sure") and not is_encoded and (may_go_on or not _ends_here(name, after)):
        confidence = "likely"
    begins_line = not before.strip() or before.rstrip(" \t")[-1:] in "\r\n"
    is_line = begins_line and not after.lstrip(" \t").partition("\n")[0].strip(_CLOSING)
    repairs = len(_OF_PREFIX.intersection(rules))
    is_url = before.endswith(("/", "org", "net")) and _RESOLVER.search(before[-96:]) is not None
    is_labelled = is_url or "own-url" in rules or _LABEL.search(before[-32:]) is not None
    if not is_labelled and prefix.startswith("10.0"):
        return None
    if is_labelled or is_line:
        is_odd = _UNSEEN.fullmatch(prefix) or _YEAR.match(name) or (is_line and repairs)
        return _lower(confidence, "likely") if is_odd else confidence
    # A slash that is not missing: /var/cache/10.1000.tmp/182.
    if ("missing-slash" in rules and "/" in suffix) or _YEAR.match(name) or _FRACTIONS.match(suffix):
        return None
    is_number = _NUMBER.fullmatch(suffix) is not None
    # Arithmetic goes on after a number; or a word does, and nothing cites it.
    if is_number and (
        _ARITHMETIC.match(after) or (re.match(r"[ \t]+[A-Za-z]", after) and not _CITING.search(before[-32:]))
    ):
        return None
    most = _weigh_without_label(prefix, suffix, before, repairs, is_number=is_number, begins_line=begins_line)
    is_value = before.endswith(("'", '"', "{")) and after.startswith(("'", '"', "}"))
    if most is None and is_value and not (is_number or repairs):
        most = "likely"  # one word, which is the whole value
    return None if most is None else _lower(confidence, most)


def _read_before(before: str, after: str) -> tuple[str, bool]:
    """What stands before a name, without its escapes, and whether the name begins a value."""
    if "%" in before[-32:] or "&" in before[-32:] or "\\" in before[-32:]:
        before = re.sub(r"\\[nrt]\Z", "\n", unescape(unquote(before)).replace("\\/", "/"))
    if _SUBFIELD.fullmatch(before[-2:]) or (before.endswith("=") and _ATTRIBUTE.search(before)):
        return "", True
    # Mathematics of TeX: $10.1000/182$.
    return (before[:-1] if before.endswith("$") and after.startswith("$") else before), False


def _weigh_without_label(
    prefix: str, suffix: str, before: str, repairs: int, *, is_number: bool, begins_line: bool
) -> Confidence | None:
    """How certain a name can be at most that no label and no URL of a resolver announces."""
    near, found = before[-32:], _GLUED.search(before)
    word = found[0] if found and any(map(str.isalnum, found[0])) else ""
    if _OTHER.search(before):
        return None
    if ("://" in word or word.lower().startswith("www.")) and _PLACE.search(word):
        return "literal"
    is_weak = is_number or _WORD.fullmatch(suffix) is not None
    is_strong = not is_number and _STRONG.fullmatch(suffix) is not None
    last = before[-1:]
    is_glued = last.isascii() and (last.isalpha() or (last in "-+#@" and word != ""))
    is_citing = _CITING.search(near) is not None
    is_after_word = _AFTER_WORD.search(near) is not None and not is_citing
    if is_glued or _QUANTITY.search(near) or _UNSEEN.fullmatch(prefix):
        return "likely" if is_strong and repairs < 2 else None
    if repairs:
        if not is_strong and (word or is_after_word or is_weak):
            return None
        return "doubtful" if repairs > 1 else "likely"
    if word:
        return None if is_weak or _PART.fullmatch(suffix) else "likely"
    if is_weak and (is_after_word or not (is_number or is_citing or begins_line)):
        return None
    return (
        "literal"
        if (is_strong and not is_after_word) or ((begins_line or is_citing) and len(suffix) >= 3)
        else "likely"
    )


def _lower(confidence: Confidence, most: Confidence) -> Confidence:
    order: tuple[Confidence, ...] = ("doubtful", "likely", "sure", "literal")
    return min(confidence, most, key=order.index)


def _ends_here(name: str, after: str) -> bool:
    """Whether a name is whole and clean, and ends where it seems to end.

    It does not if its prefix is unlikely, if a bracket in it has no partner, if it has a foreign sign, if it ends
    inside a SICI, or if it may go on: with a glued word, after a blank with a number, or after the end of its line.
    """
    # No registered name ends with one of these. The name goes on in the next line.
    return (
        _USUAL.fullmatch(name) is not None
        and USUAL_PREFIX.fullmatch(name.partition("/")[0]) is not None
        and not name.endswith(("-", "_"))
        and not _SECOND.search(name)
        and all(name.count(opener) == name.count(closer) for opener, closer in ("()", "[]", "<>"))
        and ("<" not in name or find_span(name) != (0, 0))
        and not is_cut(name)
        and not (_WORD_AFTER.match(after) and _LETTERS.search(name))
        and not (after and (_GOES_ON.match(after) or _NEXT_NUMBER.match(after) or _NEXT_LINE.match(after)))
    )


def read_on(name: str, after: str) -> Iterator[tuple[str, str]]:
    """What else a name may be, each with its rule: whole, without a glued word, with what stands after it."""
    if name[-1].isalnum() and after[:1] in _CHECKS:
        yield name + after[0], "check-character"
    if command := _COMMAND.match(after):
        yield name + command[1], "latex-escape"
    for whole in complete(name):
        yield whole, "sici-check"
    if (letters := _LETTERS.search(name)) and _WORD_AFTER.match(after):
        yield name[: letters.start()], "next-word"
    if number := _NEXT_NUMBER.match(after):
        yield f"{name}_{number[1]}", "underscore"
    if line := _NEXT_LINE.match(after):
        yield name + line[1] + line[2].rstrip(".)"), "line-end"


def find_check_character(name: str, before: str, after: str) -> str:
    """The sign after a name that is likely its last character: 10.18730/NVXJ*. "" without one."""
    signs, suffix = _CHECKED.match(after), name.partition("/")[2]
    if not signs or not _BASE_32.fullmatch(suffix) or signs[0][0] == before[-1:]:
        return ""
    is_whole = not before.strip() and not after[signs.end() :].strip()
    return signs[0] if is_whole or (len(suffix) <= 8 and any(map(str.isdigit, suffix))) else ""
