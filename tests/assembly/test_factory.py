"""The factory for other ASGI servers, which reads the environment."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from bench import plain_asgi
from doi_proxy.main import create_from_environment
from doi_proxy.system.options import ENV_PREFIX

_LISTENS: Final = re.compile(r"running on http://127\.0\.0\.1:(\d+)")


def test_the_bench_uses_the_factory() -> None:
    assert plain_asgi.create_from_environment is create_from_environment


@pytest.mark.process
def test_plain_uvicorn_serves_the_application_with_the_settings_of_the_environment(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ENV_PREFIX)}
    environment |= {"DOI_PROXY_MODE": "sealed", "DOI_PROXY_STORE_URL": f"sqlite:///{tmp_path}/cache.db"}
    command = [sys.executable, "-m", "uvicorn", "--factory", "doi_proxy.main:create_from_environment", "--port", "0"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            found = next(filter(None, map(_LISTENS.search, server.stderr)), None)
            assert found is not None
            connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
            assert (tmp_path / "cache.db").exists()
            connection.close()
        finally:
            server.terminate()
