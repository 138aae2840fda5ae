"""The page of a seed record says no more about its age than the seed does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.proxy import Proxy

SEED = '{"handle": "10.5555/A", "values": [{"index": 1, "type": "URL", "data": "https://example.org/a"}]}\n'


@pytest.mark.anyio
async def test_a_record_without_times_was_never_confirmed_as_far_as_its_page_knows(tmp_path: Path) -> None:
    path = tmp_path / "seed.ndjson"
    path.write_text(SEED)
    async with Proxy(seed=path) as proxy:
        proxy.upstream.fault("10.5555/A", "reset")
        page = await proxy.get("/10.5555/A?noredirect", accept="text/html")
        rows = await proxy.ask(
            "POST", "/api/resolve?output=json", body='["10.5555/A"]', content_type="application/json"
        )
    assert page.status == 200 and "It could not be confirmed just now." in page.text
    assert "last confirmed" not in page.text
    assert page["age"] is None
    assert rows.json[0]["age"] is None and rows.json[0]["stale"]
