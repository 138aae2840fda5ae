"""The QR code on the page of a record: its address, its picture and its bounds."""

from __future__ import annotations

import re
import time

import pytest
import segno

from app.doi.name import HandleName
from app.features.qr.drawing import draw
from app.features.qr.section import MAX_CHARACTERS, QRSection
from app.resolver.demand import Demand
from tests.web.proxy import running

pytestmark = pytest.mark.anyio

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
#: The longest name with a code.
LONGEST = "10.5555/" + "x" * (MAX_CHARACTERS - len("https://doi.org/10.5555/"))


@pytest.mark.parametrize("url", ["https://doi.org/10.1000/182", "https://doi.org/" + LONGEST])
def test_the_path_has_the_modules_of_the_code(url: str) -> None:
    code = draw(url)
    modules = [[0] * code.size for _ in range(code.size)]
    strokes = re.findall(r"M(\d+) (\d+)h(\d+)", code.path)
    assert "".join("M{} {}h{}".format(*stroke) for stroke in strokes) == code.path
    for x, y, width in (map(int, stroke) for stroke in strokes):
        modules[y][x : x + width] = [1] * width
    expected = segno.make_qr(url, error="m", mask=0, boost_error=False)
    assert [list(row) for row in expected.matrix] == modules
    assert expected.designator == f"{expected.version}-M" and not expected.is_micro


@pytest.mark.parametrize(
    ("language", "title"),
    [("en", "QR code of "), ("de", "QR-Code von "), ("fr", "Code QR de "), ("es", "Código QR de ")],
)
async def test_the_page_of_a_record_has_a_code_with_a_name(language: str, title: str) -> None:
    async with running() as proxy:
        proxy.upstream.put('10.5555/a<b>"ä&?#', url="https://publisher.example/")
        path = "/10.5555/a%3Cb%3E%22%C3%A4&%3F%23?noredirect"
        page = (await proxy.get(path, accept=BROWSER, accept_language=language)).text
        address = "https://doi.org/10.5555/a%3Cb%3E%22%C3%A4%26%3F%23".replace("%26", "&amp;")
        assert f"<title>{title}{address}</title>" in page
        assert draw(address.replace("&amp;", "&")).path in page
        assert "<script" not in page and "style=" not in page


async def test_only_a_record_of_a_doi_has_a_code() -> None:
    async with running(resolve="any") as proxy:
        for name in ("10.5555", "20.500.12345/1", LONGEST + "x"):
            proxy.upstream.put(name, url="https://publisher.example/")
            assert "<figure" not in (await proxy.get(f"/{name}?noredirect", accept=BROWSER)).text
        proxy.upstream.put(LONGEST, url="https://publisher.example/")
        assert "<figure" in (await proxy.get(f"/{LONGEST}?noredirect", accept=BROWSER)).text
        assert "<figure" not in (await proxy.get("/10.5555/none", accept=BROWSER)).text


async def test_the_longest_code_takes_a_bounded_time_and_is_drawn_once() -> None:
    section, name = QRSection(), HandleName(LONGEST)
    await section.prepare_record(HandleName("10.5555/a"), Demand())
    took = []
    for number in range(5):
        other = HandleName(LONGEST[:-1] + str(number))
        began = time.process_time()
        await section.prepare_record(other, Demand())
        took.append(time.process_time() - began)
    assert min(took) < 0.02
    await section.prepare_record(name, Demand())
    first = section.read("values", name, "")
    await section.prepare_record(name, Demand())
    assert section.read("values", name, "")["qr"] is first["qr"]
    assert section.read("not_found", name, "") == {}
    for number in range(300):
        await section.prepare_record(HandleName(f"10.5555/{number}"), Demand())
    assert section.read("values", name, "") == {}
