"""One text has one reading, wherever it is sent: form, parse, extract, resolve, list, assistants, command."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from html import unescape
from typing import Final
from urllib.parse import quote, unquote

import pytest

from app.cli.main import main
from tests.features.assistants.test_tools import running as running_tools
from tests.table import table
from tests.web.proxy import Proxy, running

pytestmark = pytest.mark.anyio

BROWSER: Final = "text/html,application/xhtml+xml,*/*;q=0.8"
SICI: Final = "10.1000/(SICI)1097-4571(1999)50:10<947::AID>2.0.CO;2"
TEXTS: Final = [
    # a text as people paste it, the one name in it
    ("10.1000/182", "10.1000/182"),
    ("  10.1000/182\n", "10.1000/182"),
    ("doi:10.1000/182", "10.1000/182"),
    ("DOI: 10.1000/182", "10.1000/182"),
    ("https://doi.org/10.1000/182", "10.1000/182"),
    ("http://dx.doi.org/10.1000/182", "10.1000/182"),
    ("https://doi-org.ezproxy.example.edu/10.1000/182", "10.1000/182"),
    ("https://doi.org/10.1000%2F182", "10.1000/182"),
    ("https://doi.org/abcde", "10/abcde"),
    ("<https://doi.org/10.1000/182>", "10.1000/182"),
    ("“10.1000/182”", "10.1000/182"),
    ("(10.1000/182)", "10.1000/182"),
    ("[10.1000/182]", "10.1000/182"),
    ("**10.1000/182**", "10.1000/182"),
    ("see 10.1000/182, page 3", "10.1000/182"),
    ("Smith J (2021). A title. J 23(7):550. doi:10.1000/182.", "10.1000/182"),
    ("https://publisher.example/doi/full/10.1000/182", "10.1000/182"),
    ("https://publisher.example/doi/10.1000/182/abstract", "10.1000/182"),
    ("https://publisher.example/doi/10.1000/182?download=true", "10.1000/182"),
    ("https://publisher.example/?doi=10.1000%2F182&y=1", "10.1000/182"),
    ('<a href="https://doi.org/10.1000/182">link</a>', "10.1000/182"),
    ("doi = {10.1000/182},", "10.1000/182"),
    (r"doi = {10.1000/18\_2}", "10.1000/18_2"),
    (r'"doi":"10.1000\/182"', "10.1000/182"),
    ("(10.1000/182)/S/URI", "10.1000/182"),
    ("text 10.1000/182>>/Border", "10.1000/182"),
    ("text １０．１０００／１８２ text", "10.1000/182"),
    ("text 10.10O0/182 text", "10.1000/182"),
    ("text 1O.1000/182 text", "10.1000/182"),
    ("text 10,1000/182 text", "10.1000/182"),
    ("text 10.1000?/182 text", "10.1000/182"),
    ("text 10.1000/con\ufb01ned text", "10.1000/confined"),
    ("text 10.1000/1\u00ad82 text", "10.1000/182"),
    ("text 10.1000/1\u20138 text", "10.1000/1-8"),
    ("text 10.1000/ 182", "10.1000/182"),
    ("text 10.1371/journal.\npone.0123456", "10.1371/journal.pone.0123456"),
    (f"text {SICI} text", SICI),
    ("info:doi/10.1000/182", "10.1000/182"),
    ("urn:doi:10.1000/182", "10.1000/182"),
    ("Digital Object Identifier 10.1000/182", "10.1000/182"),
    ("https://web.example/20200101/https://doi.org/10.1000/182", "10.1000/182"),
    ("[a title](https://doi.org/10.1000/182).", "10.1000/182"),
    (r"\href{https://doi.org/10.1000/182}{A title}", "10.1000/182"),
    ("{{cite journal |title=A |doi=10.1000/182 |pmid=1}}", "10.1000/182"),
    ("UR  - https://doi.org/10.1000/182", "10.1000/182"),
    ("LID - 10.1000/182 [doi]", "10.1000/182"),
    ("<prism:doi>10.1000/182</prism:doi>", "10.1000/182"),
    ("_10.1000/182_", "10.1000/182"),
    ("see 10.1000/182[Crossref]", "10.1000/182"),
    ("see 10.1000/182…", "10.1000/182"),
    ("see 10.1000/182.svg", "10.1000/182"),
    ("10.1000⁄182", "10.1000/182"),
    ("10․1000/182", "10.1000/182"),
    ("10.1000&#x2F;182", "10.1000/182"),
    ("10 .1000/182", "10.1000/182"),
    ("text 10.1000 / 182", "10.1000/182"),
    ("doi.10.1000/182", "10.1000/182"),
    (r"text 10.1000\182 text", "10.1000/182"),
    ("doi:10.1000/con\u00ad\nfined text", "10.1000/confined"),
    ("doi:10.1016/j.cell.2020.\n01.021", "10.1016/j.cell.2020.01.021"),
    # names as they stand, with an error that the form would look up
    ("10.1000/182[Crossref]", "10.1000/182"),
    ("10.1000/182…", "10.1000/182"),
    ("10.1000/182.svg", "10.1000/182"),
    ("10.1000/ 182", "10.1000/182"),
    ("10.1000/182.", "10.1000/182"),
    ("10.1000/182/", "10.1000/182"),
    ("10.1000/182, page 3", "10.1000/182"),
    ("10.1000/con\ufb01ned", "10.1000/confined"),
    ("https://doi.org/10.1000/182/abstract", "10.1000/182"),
    # a resolver's URL before another form
    ("https://doi.org/https://doi.org/10.1000/182", "10.1000/182"),
    ("https://doi.org/https://doi.org/abcde", "10/abcde"),
    ("https://doi.org/doi:10.1000/182", "10.1000/182"),
    ("https://doi.org/https://publisher.example/doi/full/10.1000/182", "10.1000/182"),
    ("see _10.1000/182_ and", "10.1000/182"),
    # a "?" or "#" that a writer encoded is a part of the name
    ("https://doi.org/10.1000/a%23b", "10.1000/a#b"),
    ("https://doi.org/10.1000/a%3Fb", "10.1000/a?b"),
    ("https://doi.org/10.1000/a%26b", "10.1000/a&b"),
    ("https://doi.org/10.1000/182#section", "10.1000/182"),
    ("https://doi.org/10.1000/182?utm_source=x", "10.1000/182"),
    # other scripts, quoted mail, cells, and what stands after a name without a blank
    ("\u0661\u0660.\u0661\u0660\u0660\u0660/\u0661\u0668\u0662", "10.1000/182"),
    ("see \u096a\u0967 and \u0967\u0966.\u0967\u0966\u0966\u0966/\u0967\u096e\u0968", "10.1000/182"),
    ("\u300c10.1000/182\u300d\u3092\u53c2\u7167", "10.1000/182"),
    ("10.1000/182\ub97c \ucc38\uc870", "10.1000/182"),
    ("> doi:10.1371/journal.\n> pone.0123456", "10.1371/journal.pone.0123456"),
    ("doi:10.1016/j.chb.2021.\r\n106707", "10.1016/j.chb.2021.106707"),
    ("doi 10. 1000 / 1 / 82", "10.1000/1/82"),
    ("Smith;2019;10.1000/182;Oxford", "10.1000/182"),
    ("10.1000/182,2009,Green", "10.1000/182"),
    ("doi:10.1000/182Received 2 March 2019", "10.1000/182"),
    ("https://doi.org/10.1000/182[3]", "10.1000/182"),
    ("10.1000/182\u00b9\u00b2", "10.1000/182"),
    ("[[https://doi.org/10.1000/182][link]]", "10.1000/182"),
    ("__10.1000/182__", "10.1000/182"),
    ("`doi <https://doi.org/10.1000/182>`_", "10.1000/182"),
    ("10.1000/1-<wbr>82", "10.1000/1-82"),
    (r"(https://doi.org/10.1000/S1\(05\)82)/S/URI", "10.1000/S1(05)82"),
    ("10.1000/182--", "10.1000/182"),
    ("https://doi.org/10.1145/182.=\n3300831", "10.1145/182.3300831"),
    ("see https://doi.org/10.1000/182#a", "10.1000/182"),
    ("1. A. doi:10.1000/work.\n2. B, without a DOI", "10.1000/work"),
    (r"{\tt doi:10.1000/182}", "10.1000/182"),
    ("10.1000/1548(1998)127&lt;0543:AOTRF&gt;2.0.CO;2", "10.1000/1548(1998)127<0543:AOTRF>2.0.CO;2"),
    (r"doi:10.1000/1520(1963)091\u003c0099:GC\u003e2.3.CO;2", "10.1000/1520(1963)091<0099:GC>2.3.CO;2"),
    ("10.1000/a&b", "10.1000/a&b"),
    ("https://share.example/?u=https%3A%2F%2Fdoi.org%2F10.1000%2F182%3Fid%3D1", "10.1000/182"),
]


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with running() as started:
        for _, name in TEXTS:
            started.upstream.put(name, url="https://example.org/")
        yield started


async def form_leads_to(proxy: Proxy, text: str) -> str:
    """The name that the form resolves at once, or that its page has a button for."""
    got = await proxy.post("/", f"hdl={quote(text)}&noredirect=1", accept=BROWSER)
    button = re.search(r'class="button" href="/([^"]+)"', got.text)
    shown = re.search(r'<p class="name"><bdi translate="no">([^<]+)</bdi>', got.text)
    assert got.status == 200, (got.status, text)
    return unquote(button[1]) if button else shown[1] if shown else ""


@table(("text", "name"), TEXTS)
async def test_every_reader_of_one_text_finds_the_same_name(proxy: Proxy, text: str, name: str) -> None:
    extracted = await proxy.post("/api/extract?output=json", text, content_type="text/plain")
    looked_up = await proxy.post("/api/resolve?extract=true&output=json", text, content_type="text/plain")
    assert [one["doi"] for one in extracted.json] == [name]
    assert [(one["doi"], one["verdict"]) for one in looked_up.json] == [(name, "resolved")]
    assert unescape(await form_leads_to(proxy, quote(text))) == name


async def test_every_reader_of_a_list_finds_the_same_names(proxy: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    texts, names = [quote(text) for text, _ in TEXTS], [name for _, name in TEXTS]
    for path in ("/api/parse", "/api/resolve?suggest=true"):
        listed = await proxy.post(path, json.dumps(texts), content_type="application/json")
        assert [row["best"]["doi"] for row in listed.json] == names
    main(["parse", "--format", "json", *texts])
    assert [json.loads(line)["best"]["doi"] for line in capsys.readouterr().out.splitlines()] == names
    async with running_tools() as desk:
        parsed = await desk.call("parse", texts=texts)
    assert [row["best"]["doi"] for row in parsed["texts"]] == names
