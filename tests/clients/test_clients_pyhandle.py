"""EUDAT's `pyhandle` reads records through the proxy. Only its base URL is configured."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from tests.clients.conftest import Site

pytestmark = [pytest.mark.process, pytest.mark.nightly]

with warnings.catch_warnings():
    # Its docstrings hold escapes that newer Pythons warn of.
    warnings.simplefilter("ignore")
    from pyhandle.handleclient import PyHandleClient
    from pyhandle.handleexceptions import GenericHandleError, HandleNotFoundException

NAME = "10.5555/article"


@pytest.fixture
def client(site: Site) -> Any:
    return PyHandleClient("rest").instantiate_for_read_access(handle_server_url=site.url)


def test_it_reads_a_record(client: Any) -> None:
    record = client.retrieve_handle_record(NAME)
    assert record["EMAIL"] == "someone@example.org"
    assert sorted(record) == ["EMAIL", "HS_ADMIN", "URL"]


def test_it_reads_the_record_s_json(client: Any) -> None:
    answer = client.retrieve_handle_record_json(NAME)
    assert (answer["responseCode"], answer["handle"]) == (1, NAME)
    assert [one["index"] for one in answer["values"]] == [1, 2, 100]


def test_it_reads_one_value(client: Any, site: Site) -> None:
    assert client.get_value_from_handle(NAME, "EMAIL") == "someone@example.org"
    assert client.get_value_from_handle(NAME, "CHECKSUM") is None
    assert site.upstream.queries(NAME) == 1


def test_a_name_with_odd_characters_is_read(client: Any, site: Site) -> None:
    site.upstream.put("10.5555/a(b)c;d.1", url="http://example.org/odd")
    assert client.get_value_from_handle("10.5555/a(b)c;d.1", "URL") == "http://example.org/odd"


def test_a_name_that_does_not_exist_is_none(client: Any) -> None:
    assert client.retrieve_handle_record("10.5555/no-such-name") is None
    with pytest.raises(HandleNotFoundException):
        client.get_value_from_handle("10.5555/no-such-name", "URL")


def test_silence_is_an_error_and_not_a_missing_name(client: Any, site: Site) -> None:
    site.upstream.fault("10.5555/silent", "status", status=503)
    with pytest.raises(GenericHandleError) as raised:
        client.retrieve_handle_record("10.5555/silent")
    assert not isinstance(raised.value, HandleNotFoundException)


def test_it_cannot_write(client: Any) -> None:
    with pytest.raises(Exception, match=r"(?i)credential|authenti|permission|access|username"):
        client.delete_handle(NAME)
