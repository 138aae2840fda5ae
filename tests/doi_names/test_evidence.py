"""What stands around a name decides whether it is one, and how certain that is, alike for both readers."""

from __future__ import annotations

from doi_names.find_names import find_names
from doi_names.suggestion import read_best
from tests.table import table

#: A text, the name in it or "", and how certain that is in the text.
TEXTS = [
    # Another scheme or label.
    ("ark:/10.1234/abc", "", ""),
    ("urn:nbn:de:10.1234/5678", "", ""),
    ("arXiv:1710.1000/v2", "", ""),
    ("bibcode 2010.1000/182A", "", ""),
    ("s3://bucket/10.2000-logs/a", "", ""),
    # A character before it, and what counts other things.
    ("v10.2301/beta", "", ""),
    ("US10.123456/B2", "", ""),
    ("978-0-10.1234/5", "", ""),
    ("$10.2500/share", "", ""),
    ("Fax: 010.1234/567-89", "", ""),
    ("(ratio 10.7500/7.2000)", "", ""),
    ("p = 10.4321/3.2 = 3.38", "", ""),
    # Dates, networks, rates.
    ("Heft 10.2021/22, S. 5", "", ""),
    ("season 10.1999/2000", "", ""),
    ("allow from 10.2048/11;", "", ""),
    ("route 10.1234.0.0/16", "", ""),
    ("rate 10.1234/day", "", ""),
    # Paths, and repairs that make a name of them.
    ("git checkout release/10.1000/hotfix", "", ""),
    ("https://cdn.example/jquery/10.1000/min.js", "", ""),
    ("/var/cache/10.1000.tmp/182", "", ""),
    ("n-hexane/EtOAc 10:1000/v/v", "", ""),
    ("prefixes 10.1038/ and 10.1126/ differ", "", ""),
    # One side has no evidence.
    ("we used 10.1000/ab182 for it", "10.1000/ab182", "likely"),
    ("the works/10.1000/ab182", "10.1000/ab182", "likely"),
    ("Nature10.1000/ab182 and", "10.1000/ab182", "likely"),
    ("see 10,1000/ab182 and", "10.1000/ab182", "likely"),
    ("doi:10.123456/ab182", "10.123456/ab182", "likely"),
    ("doi:10.1000/ab18*", "10.1000/ab18", "likely"),
    ("doi:10.1000/ab\\unknown c", "10.1000/ab", "likely"),
    ("<i>10.1000/ab</i><u>c_16</u>", "10.1000/abc_16", "likely"),
    # Both sides have it.
    ("DOI number: 10.1000/182, p. 5", "10.1000/182", "sure"),
    ("https://example.org/article/10.1000/182.", "10.1000/182", "sure"),
    ("(10.1000/ab182)", "10.1000/ab182", "sure"),
    ("ratio 2; doi:10.1000/9.9999", "10.1000/9.9999", "sure"),
]


@table(("text", "name", "confidence"), TEXTS)
def test_the_evidence_decides(text: str, name: str, confidence: str) -> None:
    found = [(found.name.text, found.confidence.replace("literal", "sure")) for found in find_names(text)]
    assert found == ([(name, confidence)] if name else [])
    best = read_best(text)
    assert (best.name.text if best else "") == name


def test_a_sign_is_the_last_character_if_the_name_has_base_32_and_nothing_else_is_there() -> None:
    for text, name in (("10.18730/NVXJ*", "10.18730/NVXJ*"), ("10.1000/nature18003*", "10.1000/nature18003")):
        best, (found,) = read_best(text), find_names(text)
        assert best is not None and best.name.text == found.name.text == name
        assert best.confidence == found.confidence == "likely"
        other = text.removesuffix("*") if name == text else text
        assert other in [suggestion.doi.text for suggestion in found.suggestions]
