"""Valid and invalid requests from /openapi.json get answers that the document describes.

The requests are the same each time. `make fuzz` sends others.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from schemathesis.generation import GenerationMode

from tests.cluster.processes import Proxy
from tests.hostile.conftest import started
from tests.hostile.documented_requests import TOKEN, DocumentedRequests

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory, upstream_url: str) -> Iterator[Proxy]:
    """A proxy with every path that the document can have."""
    one = started(tmp_path_factory.mktemp("documented"), upstream_url, admin_token=TOKEN)
    try:
        yield one
    finally:
        one.process.kill()


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_generated_requests_get_documented_answers(documented: Proxy, mode: GenerationMode) -> None:
    requests = DocumentedRequests(documented.url, mode)
    requests.send_round(1)
    assert requests.sent > 0
    assert requests.undocumented == {}
