"""The runbook without a running service, and where the links of the alerts lead."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.commands.main import main
from tests.web.proxy import Proxy

ROOT: Final = Path(__file__).resolve().parents[3]


def test_an_entry_is_printed_whatever_its_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runbook", "DoiProxyDown"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("### DoiProxyDown\n") and "**Do:**" in text
    assert text.count("\n#") == 0
    assert main(["runbook", "doiproxydown"]) == 0
    assert capsys.readouterr().out == text
    assert main(["runbook", "open connections"]) == 0
    assert re.fullmatch(
        r"### Open connections\n\nThe open .+\n\n- \*\*Look at:\*\* .+\n- \*\*Do:\*\* .+\n", capsys.readouterr().out
    )


def test_without_a_name_the_page_is_printed_and_other_pages_by_their_name(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, page in (([], "runbook"), (["--page", "operations"], "operations")):
        assert main(["runbook", *arguments]) == 0
        assert capsys.readouterr().out == (ROOT / f"docs/{page}.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["DoiProxyDwon"], "did you mean doiproxydown?"),
        (["--page", "../README"], "--page index` lists them"),
        (["--page", "nothing"], "--page index` lists them"),
        (["DoiProxyDown", "--page", "index"], "leave out the alert"),
    ],
)
def test_what_the_manual_does_not_have_is_said(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runbook", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.anyio
async def test_each_link_of_the_alerts_that_setup_writes_leads_to_its_entry(tmp_path: Path) -> None:
    url = "https://www.example.org/doi"
    assert main(["setup", f"--root={tmp_path}", "--yes", "--front=none", f"--public-url={url}"]) == 0
    text = (tmp_path / "etc/doi-proxy/doi-proxy-alerts.yml").read_text()
    links = re.findall(r"alert: (\w+)\n.*?runbook_url: (\S+)", text, re.DOTALL)
    assert len(links) == text.count("alert: ") > 10
    async with Proxy() as proxy:
        for alert, link in links:
            assert link == f"{url}/runbook/{alert.lower()}"
            answer = await proxy.get(link.removeprefix(url))
            assert answer.status == 200 and answer.text.startswith(f"### {alert}\n")
        assert (await proxy.get("/runbook/nothing")).status == 404
