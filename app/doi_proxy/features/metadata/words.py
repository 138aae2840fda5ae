"""Words of titles and names, in a form in which two spellings are equal. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final

#: Words without a meaning of their own, by language. One that several languages have tells none of them apart.
_STOP: Final = {
    "en": "a an and are as at between by for from how into is its of on or the to toward using via what with",
    "de": "als am auf aus bei das dem den der des die durch ein eine einer eines fur im mit nach ohne uber um und vom "
    "von wie zu zum zur",
    "fr": "a au aux avec ce dans de des du en est et l la le les leur ou par pour sur un une",
    "es": "a como con de del el en es la las lo los para por se sobre su un una y",
    "it": "che da dal dei del della delle di e gli i il la le lo nel nella per su sul tra un una",
    "pt": "a ao as com da das de do dos e em na no nos o os para por sobre uma",
    "nl": "bij de door een en het met naar om op over tot uit van voor",
    "ru": "dlia i iz k na o ob ot po pri s v",
}  # fmt: skip
STOP: Final = frozenset(word for words in _STOP.values() for word in words.split()) | {"in"}
#: Endings that tell a language, of folded words.
_ENDINGS: Final = {
    "en": re.compile(r"(?:ing|ness|ship|ed|ics?|[a-z]{3}y|ies|ous|ance|ence|sh|ck|th|ght)$"),
    "de": re.compile(r"(?:ung|[hk]eit|ische[nrs]?|lich\w{0,2}|schaft|tat|ismus|iker|[a-z]{4}en)$"),
    "fr": re.compile(r"(?:iques?|eux|aires?|eurs?|ites?|elles?|ement|isme)$"),
    "es": re.compile(r"(?:cion|ciones|dad|dades|[ií]c[oa]s?)$"),
    "it": re.compile(r"(?:zion[ei]|ita|ic[oahe]{1,2})$"),
    "pt": re.compile(r"(?:cao|coes|dades?|ic[oa]s?)$"),
}
_LANGUAGES: Final = {language: frozenset(words.split()) for language, words in _STOP.items()}
_CYRILLIC: Final = "a b v g d e zh z i i k l m n o p r s t u f kh ts ch sh shch y e iu ia i i e g"
_LETTERS: Final = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ß": "ss", "’": "'", "ʹ": "'"}
    | dict.fromkeys("‐‑‒–—―−", "-")
    # Soft hyphens and what has no width.
    | dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", "")
    | dict(zip("абвгдежзийклмнопрстуфхцчшщыэюяіїєґ", _CYRILLIC.split(), strict=True))
    | dict.fromkeys("ъь", "")
)
CJK: Final = "\u2e80-\u9fff\uf900-\ufaff"
_WORD: Final = re.compile(rf"[{CJK}]+|(?:(?![{CJK}])(?:[^\W\d_]|\ufffd))+|\d+")
_ELISION: Final = re.compile(r"\b(?:[cdjlmnst]|qu|dell|nell|sull|all)'(?=\w)")
#: Prefixes that some write as words of their own.
_PREFIX: Final = re.compile(r"\b(anti|co|inter|micro|multi|non|pre|re|semi|sub)-(?=[a-z])")
_TEX: Final = re.compile(r"\\(?:[^A-Za-z]|[uvHtcdbkr](?![A-Za-z])|[A-Za-z]{2,20}(?=[\s{\\$]))\s?|[{}$]|<[^<>]{1,40}>")
_SUBTITLE: Final = re.compile(r"\s?[:;?!]\s|\.\s|\s-+\s|--+|(?<=[^\W\d]):(?=[^\W\d])")
#: What spellings of one name differ in, after folding: transliterations, and German vowels.
_SOUNDS: Final = tuple(
    (re.compile(pattern), sound)
    for pattern, sound in (
        ("tsch|tch|tsh|dsch|ch|cz|kh", "c"), ("sch|sh|sz|zh|z", "s"), ("([aou])e", r"\1"), ("ph|v(?=$)|ff$|w$", "f"),
        ("w", "v"), ("ij|ii|iy|y|j", "i"), ("ck|k|q|x", "c"), ("th", "t"), (r"(.)\1+", r"\1"),
    )
)  # fmt: skip
_PARTICLES: Final = frozenset(
    "al aus da dal de del della den der di dos du el ibn la le los van vom von zu zum zur jr sr iii".split()
)
_GROUPS: Final = re.compile(
    r"\b(?:agency|association|authority|bank|board|center|centre|college|collaboration|commission|committee|"
    r"consortium|council|department|foundation|group|institut\w*|investigators|ministry|network|office|organi[sz]ation|"
    r"panel|program\w*|project|service|society|team|university|union|world|united|national|international|bundes\w+|"
    r"statisti\w+|ministeri\w+|academy|federal|instituto|organisation|comision|commission|asociacion|gesellschaft|"
    r"forschungs\w+|cdc|who|nist|ipcc|oecd|unesco|ieee|iso|w3c|fao|esa|nasa)\b"
)


def simplify(text: str) -> str:
    """A text without accents, TeX, letter case and the variants of dashes. Cyrillic becomes Latin."""
    if text.isascii():
        return (_TEX.sub("", text) if "\\" in text or "{" in text or "$" in text else text).casefold()
    decomposed = unicodedata.normalize("NFKD", _TEX.sub("", text))
    plain = "".join(character for character in decomposed if not unicodedata.combining(character))
    return plain.casefold().translate(_LETTERS)


def split_words(text: str) -> list[str]:
    """The words of a text that mean something, in their order. Chinese and Japanese are read as pairs of characters."""
    folded = _PREFIX.sub(r"\1", _ELISION.sub(" ", simplify(text)))
    found: list[str] = []
    for word in _WORD.findall(folded):
        if "\u2e80" <= word[0] <= "\u9fff" or "\uf900" <= word[0] <= "\ufaff":
            found += [word[at : at + 2] for at in range(max(1, len(word) - 1))]
        elif word not in STOP:
            found.append(word)
    return found or _WORD.findall(folded)


def split_title(title: str) -> tuple[str, str]:
    """A title and its subtitle, "" without one."""
    found = _SUBTITLE.search(title)
    return (title[: found.start()], title[found.end() :]) if found and found.start() else (title, "")


def find_common(words: Collection[str], others: Collection[str]) -> set[str]:
    """Those of the other words that are also among the words, or nearly equal to one of them. Each counts once."""
    first, second = set(words), set(others)
    common = first & second
    left = second - common
    for word in first - common:
        if (found := find_near_word(word, left)) is not None:
            left.discard(found)
            common.add(found)
    return common


def find_near_word(word: str, others: Iterable[str]) -> str | None:
    """One of the words that is nearly equal, None without one."""
    if len(word) < 4:
        return None
    # Misread letters are seldom the first; a lost one can be.
    begins = (word[0], "\ufffd")
    return next(
        (other for other in others if (other[0] in begins or word[0] == "\ufffd") and is_near(word, other)), None
    )


def is_near(word: str, other: str) -> bool:
    """Whether two words of four letters or more are one with another ending, or a letter or two that were misread."""
    longer, shorter = max(len(word), len(other)), min(len(word), len(other))
    if shorter < 4 or longer - shorter > 2 or word.isdigit() or other.isdigit():
        return False
    begin = _count_equal(word, other)
    end = _count_equal(word[begin:][::-1], other[begin:][::-1])
    # A character that an agency has lost stands for itself and for one more.
    most = 2 if longer > 7 or "\ufffd" in word + other else 1
    return longer - begin - end <= most


def _count_equal(word: str, other: str) -> int:
    """The letters that two words begin with."""
    return next(
        (at for at, (one, two) in enumerate(zip(word, other, strict=False)) if one != two), min(len(word), len(other))
    )


def measure(words: Sequence[str], others: Sequence[str]) -> float:
    """The share of words that two titles have in common: 1.0 if they are equal."""
    total = len(set(words)) + len(set(others))
    return 2 * len(find_common(words, others)) / total if total else 0.0


def find_language(title: str) -> str:
    """The language of most of the small words and endings of a title, or its script. "" if none is known."""
    if not is_latin(title):
        scripts = (unicodedata.name(letter, "").partition(" ")[0] for letter in title if letter.isalpha())
        return "CJK" if re.search(f"[{CJK}]", title) else next(scripts, "")
    words = _WORD.findall(simplify(title))
    counts: list[tuple[int, str]] = []
    for language, known in _LANGUAGES.items():
        ending = _ENDINGS.get(language)
        ends = sum(len(word) > 4 and ending.search(word) is not None for word in words) if ending else 0
        counts.append((2 * sum(word in known for word in words) + ends, language))
    (second, _), (most, language) = sorted(counts)[-2:]
    return language if most > second else ""


def is_latin(text: str) -> bool:
    """Whether most letters of a text are Latin or Cyrillic, which can be compared."""
    if text.isascii():
        return True
    letters = [character for character in text if character.isalpha()]
    return sum(letter < "\u0530" or "\u1e00" <= letter < "\u1f00" for letter in letters) * 2 >= len(letters)


def name_words(names: str) -> set[str]:
    """The words of names by which people are known."""
    words = {word for word in _WORD.findall(simplify(names)) if len(word) > 1 or word > "\u2e80"}
    return (words - _PARTICLES) or words


@lru_cache(4_096)
def sound(word: str) -> str:
    """A name in a form that its transliterations share."""
    for pattern, letters in _SOUNDS:
        word = pattern.sub(letters, word)
    return word


def has_name(name: str, words: Iterable[str]) -> bool:
    """Whether one of the words is a part of a name, in any spelling."""
    wanted, known = name_words(name), set(words)
    if wanted & known or any(part in word for part in wanted if part > "\u2e80" for word in known):
        return True
    sounds = {sound(word) for word in wanted}
    return any(
        (heard := sound(word)) in sounds or any(is_near(heard, other) for other in sounds)
        for word in known
        if len(word) > 2
    )


def is_group(name: str) -> bool:
    """Whether a name is that of an organisation."""
    return bool(_GROUPS.search(simplify(name)))


def has_group(name: str, text: str) -> bool:
    """Whether a text has the name of an organisation, or the initials of one."""
    words, known = name_words(name), name_words(text)
    initials = "".join(word[0] for word in split_words(name) if word.isalpha())
    others = "".join(word[0] for word in split_words(text)[:12] if word.isalpha())
    return (
        2 * len(find_common(words, known)) > len(words)
        or (len(initials) > 2 and initials in known)
        or (len(known) == 1 and len(others) < 3 and len(next(iter(known))) > 2 and next(iter(known)) in initials)
    )
