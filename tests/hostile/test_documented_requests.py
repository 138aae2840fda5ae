"""Valid and invalid requests from /openapi.json get answers that the document describes.

The requests are the same each time. `make fuzz` sends others.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.processes import Proxy
from tests.hostile.conftest import ADMIN_TOKEN, started

pytestmark = [pytest.mark.process, pytest.mark.nightly]

#: The modes of Schemathesis, whose import takes each process that collects tests 1.4 s of processor time.
MODES = ["positive", "negative"]


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory, upstream_url: str) -> Iterator[Proxy]:
    """A proxy with every path that the document can have."""
    one = started(tmp_path_factory.mktemp("documented"), upstream_url, admin_token=ADMIN_TOKEN)
    try:
        yield one
    finally:
        one.process.kill()


@pytest.mark.parametrize("mode", MODES)
def test_generated_requests_get_documented_answers(documented: Proxy, mode: str) -> None:
    from schemathesis.generation import GenerationMode  # noqa: PLC0415

    from tests.hostile.documented_requests import DocumentedRequests  # noqa: PLC0415

    assert [one.value for one in GenerationMode] == MODES
    requests = DocumentedRequests(documented.url, GenerationMode(mode))
    requests.send_round(1)
    assert requests.sent > 0
    assert requests.undocumented == {}
