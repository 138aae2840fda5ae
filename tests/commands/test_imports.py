"""What a start imports, and what the garbage collector makes of it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import certifi
import pytest

from doi_proxy.commands.imports import collect_nothing, skip_pydantic_plugins


def test_the_garbage_collector_leaves_alone_what_is_imported_and_runs_afterwards() -> None:
    with collect_nothing():
        assert not gc.isenabled()
        kept: list[list[int]] = [[] for _ in range(10)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(kept)


@pytest.mark.process
def test_a_start_reads_no_certificates_for_contexts_that_it_does_not_use() -> None:
    code = """
import ssl
from doi_proxy.commands.imports import import_aiohttp

before = ssl.SSLContext.set_default_verify_paths
import_aiohttp()
from aiohttp import connector

assert ssl.SSLContext.set_default_verify_paths is before
context = connector._SSL_CONTEXT_VERIFIED
assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname
print(context.cert_store_stats()["x509"])
"""
    environment = {**os.environ, "SSL_CERT_FILE": certifi.where()}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert done.stdout == b"0\n"


def test_an_operator_s_choice_of_pydantic_plugins_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", "one")
    skip_pydantic_plugins()
    assert os.environ["PYDANTIC_DISABLE_PLUGINS"] == "one"
