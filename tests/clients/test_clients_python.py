"""Python clients: each asks the proxy, by its setting or because the institution's network leads doi.org there.

A snippet of code runs in the environment of the clients, and prints what it got as JSON.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import BIBTEX, Site
from tests.clients.installed import run_python
from tests.clients.network import Network

pytestmark = [pytest.mark.process, pytest.mark.nightly]

NAME = "10.5555/article"
MISSING = "10.5555/no-such-name"


class Client:
    """Runs code in the institution's network. `BASE` is the base URL of the proxy."""

    def __init__(self, python: Path, network: Network, site: Site) -> None:
        self._python = python
        self._network = network
        self.site = site
        site.upstream.fault("10.5555/silent", "status", status=503)

    def run(self, code: str) -> Any:
        """What `result` is at the end of `code`."""
        self._network.hosts.clear()
        whole = f"import json\nBASE = {self.site.url!r}\n{code}\nprint(json.dumps(result, default=str))"
        return run_python(self._python, whole, self._network.environment)

    @property
    def hosts(self) -> list[str]:
        """The host of each connection of the last run, without those to loopback."""
        return self._network.hosts


@pytest.fixture
def client(python: Path, network: Network, site: Site) -> Client:
    return Client(python, network, site)


def page(client: Client) -> str:
    """The URL to which NAME leads."""
    return f"{client.site.target}/page"


CATCH = """
def attempt(call, *args, **options):
    try:
        return call(*args, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""


# --- Through the network: the URL of doi.org is in their code ------------------------------------------------------


def test_python_doi_finds_the_target_and_takes_every_error_for_a_missing_name(client: Client) -> None:
    code = f"{CATCH}\nimport doi\nresult = [attempt(doi.validate_doi, one) for one in "
    code += f"({NAME!r}, {MISSING!r}, '10.5555/silent')]"
    assert client.run(code) == [page(client), *["ValueError: HTTP 404: DOI not found"] * 2]
    assert client.hosts == ["doi.org"] * 3


def test_pydoi_finds_the_target_and_the_record(client: Client) -> None:
    code = f"import pydoi\nresult = [pydoi.get_url({NAME!r}), pydoi.resolve({MISSING!r})['responseCode']]"
    assert client.run(code) == [page(client), 100]
    assert set(client.hosts) == {"doi.org"}


def test_repo2docker_finds_the_repository(client: Client) -> None:
    code = "from repo2docker.contentproviders.doi import DoiProvider\n"
    code += f"result = [DoiProvider().doi2url(one) for one in ({NAME!r}, {MISSING!r})]"
    assert client.run(code) == [page(client), MISSING]
    assert set(client.hosts) == {"doi.org"}


def test_pooch_follows_the_redirect(client: Client) -> None:
    code = f"from pooch.downloaders import doi_to_url\n{CATCH}\nresult = [doi_to_url({NAME!r}), "
    code += f"attempt(doi_to_url, {MISSING!r})]"
    target, error = client.run(code)
    assert target == page(client)
    assert error.startswith("HTTPError: 404")
    assert set(client.hosts) == {"doi.org"}


def test_datahugger_resolves_and_reads_metadata(client: Client) -> None:
    code = f"from datahugger.handles import DOI\n{CATCH}\nname = DOI.parse({NAME!r})\n"
    code += f"result = [name.resolve(), name.metadata.bibtex(), attempt(DOI.parse({MISSING!r}).resolve)]"
    target, bibtex, error = client.run(code)
    assert (target, bibtex) == (page(client), BIBTEX)
    assert "not found in the DOI system" in error
    assert set(client.hosts) == {"doi.org"}


def test_commonmeta_reads_the_registration_agency(client: Client) -> None:
    assert client.run(f"from commonmeta import get_doi_ra\nresult = get_doi_ra({NAME!r})") == "Agency"
    assert set(client.hosts) == {"doi.org"}


def test_isbnlib_cites_through_the_network_and_by_its_constant(client: Client) -> None:
    code = f"import isbnlib, isbnlib._doitotex\nfirst = isbnlib.doi2tex({NAME!r})\n"
    # isbnlib remembers the answer to a name; ASCII letters of either case are the same name.
    code += f"isbnlib._doitotex.URL = BASE + '/{{DOI}}'\nresult = [first, isbnlib.doi2tex({NAME.upper()!r})]"
    assert client.run(code) == [BIBTEX, BIBTEX]
    assert client.hosts == ["dx.doi.org"]


def test_metapub_resolves_through_the_network_and_by_its_constant(client: Client, tmp_path: Path) -> None:
    code = f"import metapub.dx_doi\n{CATCH}\nclient = metapub.dx_doi.DxDOI(cachedir={str(tmp_path)!r})\n"
    code += f"first = client.resolve({NAME!r})\nmetapub.dx_doi.DX_DOI_URL = BASE + '/%s'\n"
    code += f"result = [first, client.resolve({NAME!r}, skip_cache=True), attempt(client.resolve, {MISSING!r})]"
    *targets, error = client.run(code)
    assert targets == [page(client)] * 2
    assert error.startswith("DxDOIError") and "404" in error
    assert client.hosts == ["dx.doi.org"]


# --- By a setting or an argument ------------------------------------------------------------------------------------


def test_b2handle_reads_records(client: Client) -> None:
    code = "from b2handle.handleclient import EUDATHandleClient\n"
    code += "client = EUDATHandleClient.instantiate_for_read_access(handle_server_url=BASE)\n"
    code += f"result = [client.get_value_from_handle({NAME!r}, 'URL'), client.retrieve_handle_record({MISSING!r})]"
    assert client.run(code) == [page(client), None]
    assert client.hosts == []


def test_manubot_cites_by_its_constant_and_expands_short_dois_through_the_network(client: Client) -> None:
    code = f"import manubot.cite.doi as cite\n{CATCH}\ncite.content_negotiation_url_default = BASE\n"
    code += f"result = [cite.get_doi_csl_item_default({NAME!r})['DOI'], cite.expand_short_doi('10/abc12'), "
    code += "attempt(cite.expand_short_doi, '10/nothere')]"
    cited, expanded, error = client.run(code)
    assert (cited, expanded) == (NAME, NAME)
    assert "Handle not found" in error
    assert client.hosts == ["doi.org"] * 2


def test_zenodo_get_takes_a_url_of_the_proxy_for_a_doi_or_asks_through_the_network(client: Client) -> None:
    code = "import httpx2\nfrom zenodo_get.workflow.resolve_doi import resolve_doi\n"
    code += "result = [resolve_doi(name, 10, True, lambda: httpx2.Client(follow_redirects=True))"
    code += " for name in (BASE + '/10.5281/zenodo.1234', '10.5281/zenodo.1234')]"
    assert client.run(code) == ["1234", "1234"]
    assert client.hosts == ["doi.org"]


def test_signposting_reads_the_links_of_the_target(client: Client) -> None:
    code = f"from signposting import find_signposting_http\nresult = find_signposting_http(BASE + '/{NAME}')"
    code += ".citeAs.target"
    assert client.run(code) == f"https://doi.org/{NAME}"
    assert client.hosts == []


def test_idutils_asks_no_resolver_and_writes_any_base_url(client: Client) -> None:
    code = "import idutils, idutils.normalizers\n"
    code += f"before = idutils.to_url({NAME!r}, 'doi', url_scheme='https')\n"
    code += "idutils.normalizers.IDUTILS_LANDING_URLS['doi'] = BASE + '/{pid}'\n"
    code += f"result = [before, idutils.to_url({NAME!r}, 'doi')]"
    assert client.run(code) == [f"https://doi.org/{NAME}", f"{client.site.url}/{NAME}"]
    assert client.hosts == []


# --- Never ask doi.org ---------------------------------------------------------------------------------------------


def test_papis_asks_crossref_and_not_doi_org(client: Client) -> None:
    code = f"from papis.crossref import doi_to_data\n{CATCH}\nresult = attempt(doi_to_data, {NAME!r})"
    client.run(code)
    assert set(client.hosts) == {"api.crossref.org"}
