"""With library rules, every way gives the same bytes, and no prepared answer outlives the rules."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.features.library.library import RULES_FILE
from doi_proxy.server.protocol import ServerProtocol
from tests.clock import Clock
from tests.features.library.in_force import library_of
from tests.server.test_prepared_answers import get
from tests.server.ways import Server, Ways, lane_uses

pytestmark = pytest.mark.anyio

SERVICE: Final = '[[service]]\nname = "a"\nlabel = "A"\nkind = "ezproxy"\nurl = "https://e.example/login"\n'
RULE: Final = '[[rule]]\nservice = "a"\nhosts = ["www.doi.org"]\n'
BROWSER: Final = "Accept: text/html,*/*;q=0.8"
EZPROXY: Final = b"location: https://e.example/login?url=http://www.doi.org/hb.html\r\n"
DIRECT: Final = b"location: http://www.doi.org/hb.html\r\n"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.toml"
    file.write_text(SERVICE + RULE, encoding="utf-8")
    return file


async def test_every_way_gives_the_same_bytes(rules: Path) -> None:
    paths = ("/10.1000/182", "/10.1000/links", "/10.1000/loc", "/10.1000/mail", "/10.1000/alias", "/10.1000/182?nols=y")
    headers = (
        (),
        ("Accept: */*",),
        (BROWSER,),
        (BROWSER, "Cookie: Library-OpenURL=none"),
        ("Accept: application/x-bibtex",),
    )
    requests = [get(path, *lines) for path, lines in product(paths, headers)]
    await Ways(privacy=0, library_rules=rules).compare([([one], 0.3) for one in (*requests, *reversed(requests))])


async def test_the_lane_answers_only_what_the_url_and_accept_decide(rules: Path) -> None:
    server = Server(Clock(), ServerProtocol, library_rules=rules)
    uses = lane_uses(server.application)
    for _ in range(3):
        assert EZPROXY in (await server.answers(get("/10.1000/182", BROWSER)))[0]
        assert DIRECT in (await server.answers(get("/10.1000/182", BROWSER, "Cookie: Library-OpenURL=none")))[0]
    assert uses == []
    for path, *lines in (("/10.1000/182",), ("/10.1000/182?nols=y", BROWSER), ("/10.1000/mail", BROWSER)):
        for _ in range(3):
            assert EZPROXY not in (await server.answers(get(path, *lines)))[0]
        assert uses, path
        del uses[:]
    assert EZPROXY in (await server.answers(get("/10.1000/182", BROWSER)))[0]


async def test_a_client_that_chooses_the_host_of_a_target_prepares_nothing_for_others(rules: Path) -> None:
    server = Server(Clock(), ServerProtocol, library_rules=rules)
    for _ in range(3):
        forged = get("/10.1000/182", BROWSER).replace(b"Host: x", b"Host: www.doi.org")
        assert DIRECT in (await server.answers(forged))[0]
    assert EZPROXY in (await server.answers(get("/10.1000/182", BROWSER)))[0]


async def test_a_prepared_answer_dies_when_the_rules_change(rules: Path) -> None:
    server = Server(Clock(), ServerProtocol)
    uses = lane_uses(server.application)
    for _ in range(2):
        assert DIRECT in (await server.answers(get("/10.1000/182", BROWSER)))[0]
    assert len(uses) == 2
    library_of(server.application).use(RULES_FILE.read(rules).value)
    assert EZPROXY in (await server.answers(get("/10.1000/182", BROWSER)))[0]
    assert len(uses) == 2
