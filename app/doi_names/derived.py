"""Names that follow by rule from another identifier: a number of arXiv, the URL of an article or of a record.

A rule says what a name would be, not that it is registered. A caller looks each of these names up before it offers one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from doi_names.find_names import FoundName
from doi_names.name import DOIName

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


def _write_osf(found: re.Match[str]) -> str:
    return f"10.17605/OSF.IO/{found[1].upper()}"


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
    _rule("osf", r"\bosf\.io/([0-9a-z]{5})(?![0-9a-z])", _write_osf, "10.17605/OSF.IO/EZCUJ", "https://osf.io/ezcuj/"),
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
