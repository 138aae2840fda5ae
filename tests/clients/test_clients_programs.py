"""curl, wget, a page in a browser and clients from the npm registry ask the proxy."""

from __future__ import annotations

import json
import shutil
import subprocess
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from habanero import cn
from playwright.async_api import async_playwright

from tests.browser.watched import CHROMIUM_FLAGS
from tests.clients.conftest import BIBTEX, FORMATS, Site
from tests.clients.installed import run_node
from tests.clients.network import Network

pytestmark = [pytest.mark.process, pytest.mark.nightly]


NAME = "10.5555/article"
ACCEPT = "Accept: application/x-bibtex"


def output_of(command: list[str], environment: Mapping[str, str]) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed: apt-get install {command[0]}")
    done = subprocess.run(command, env=dict(environment), check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_curl_reads_the_target_and_the_metadata(site: Site, network: Network) -> None:
    target = ["curl", "-s", "-o", "/dev/null", "-w", "%{redirect_url}", f"{site.url}/{NAME}"]
    assert output_of(target, network.environment) == f"{site.target}/page"
    metadata = ["curl", "-sL", "-H", ACCEPT, f"{site.url}/{NAME}"]
    assert output_of(metadata, network.environment) == BIBTEX


@pytest.mark.parametrize(
    "url", ["https://doi.org", "https://www.doi.org", "http://dx.doi.org", "https://hdl.handle.net"]
)
def test_curl_finds_the_proxy_at_every_name_of_the_network(network: Network, url: str) -> None:
    network.hosts.clear()
    assert output_of(["curl", "-sL", "-H", ACCEPT, f"{url}/{NAME}"], network.environment) == BIBTEX
    assert network.hosts == [url.partition("//")[2]]


def test_wget_reads_the_metadata(site: Site, network: Network) -> None:
    wget = ["wget", "-qO-", f"--header={ACCEPT}"]
    assert output_of([*wget, f"{site.url}/{NAME}"], network.environment) == BIBTEX
    through = [*wget, f"--ca-certificate={network.ca}", f"https://doi.org/{NAME}"]
    assert output_of(through, network.environment) == BIBTEX


@pytest.mark.anyio
async def test_a_page_of_another_site_reads_records_and_errors(site: Site) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("there is no browser: apt-get install chromium")
    read = """async (url) => {
      const reply = await fetch(url);
      return [reply.status, (await reply.json()).responseCode];
    }"""
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=browser, args=CHROMIUM_FLAGS)
        page = await started.new_page()
        # The metadata service has another origin than the proxy.
        await page.goto(f"{site.target}/page")
        assert await page.evaluate(read, f"{site.url}/api/handles/{NAME}") == [200, 1]
        assert await page.evaluate(read, f"{site.url}/api/handles/10.5555/no-such-name") == [404, 100]
        await started.close()


# --- From the npm registry -----------------------------------------------------------------------------------------


def test_citation_js_reads_a_url_of_the_proxy_if_its_pattern_is_added(site: Site, network: Network, node: Path) -> None:
    code = f"""
    import {{ Cite, plugins }} from '@citation-js/core';
    import {{ formats }} from '@citation-js/plugin-doi';
    import '@citation-js/plugin-bibtex';
    const base = {json.dumps(site.url)};
    plugins.input.add('@proxy/url', {{
      ...formats['@doi/api'],
      parseType: {{ ...formats['@doi/api'].parseType, predicate: (text) => text.startsWith(base + '/10.') }},
    }});
    plugins.input.add('@doi/id', {{ ...formats['@doi/id'], parse: (name) => `${{base}}/${{name.trim()}}` }});
    const titles = [];
    for (const text of [base + '/{NAME}', '{NAME}']) titles.push((await Cite.async(text)).data[0].title);
    console.log(JSON.stringify(titles));
    """
    assert run_node(node, code, network.environment) == ["A title", "A title"]


def test_doi2bib_cites_through_the_network(network: Network, node: Path) -> None:
    code = f"""
    import doi2bib from 'doi2bib';
    console.log(JSON.stringify(await doi2bib.getCitation('{NAME}')));
    """
    network.hosts.clear()
    assert f"DOI:{NAME}" in run_node(node, code, network.environment)
    assert network.hosts == ["dx.doi.org"]


# --- `habanero` fetches citations through the proxy by content negotiation. Only its base URL is configured ----------


def cite(site: Site, **options: Any) -> Any:
    return cn.content_negotiation(ids=options.pop("ids", NAME), url=site.url, **options)


def test_it_reaches_the_metadata_location_of_the_prefix(site: Site) -> None:
    assert cite(site) == BIBTEX
    assert site.metadata_paths[-1] == "/10.5555%2Farticle"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("bibtex", "application/x-bibtex"),
        ("text", "text/x-bibliography"),
        ("ris", "application/x-research-info-systems"),
        ("turtle", "text/turtle"),
    ],
)
def test_it_gets_the_format_it_asks_for(site: Site, kind: str, expected: str) -> None:
    assert cite(site, format=kind) == FORMATS[expected]


def test_a_format_that_the_agency_does_not_have_is_told_by_the_agency(site: Site) -> None:
    with pytest.raises(httpx2.HTTPStatusError, match="406"):
        cite(site, format="datacite-xml")


def test_a_name_that_does_not_exist_is_404(site: Site) -> None:
    with pytest.raises(httpx2.HTTPStatusError, match="404"):
        cite(site, ids="10.5555/no-such-name")


def test_of_several_names_those_that_exist_are_cited(site: Site) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert cite(site, ids=[NAME, "10.5555/no-such-name", NAME]) == [BIBTEX, None, BIBTEX]
    assert any("404" in str(one.message) for one in caught)


def test_silence_is_not_a_missing_name(site: Site) -> None:
    site.upstream.fault("10.5555/silent", "status", status=503)
    with pytest.raises(httpx2.HTTPStatusError, match=r"50[234]"):
        cite(site, ids="10.5555/silent")
