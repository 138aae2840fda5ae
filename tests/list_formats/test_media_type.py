"""The media type of a body by its Content-Type (RFC 9110, section 8.3)."""

from __future__ import annotations

import pytest

from doi_proxy.errors import UnsupportedBody
from doi_proxy.list_formats.body import read_content_type
from doi_proxy.web.request import media_type_of
from doi_proxy.web.request_path import CSV, JSON, NDJSON, TEXT


@pytest.mark.parametrize(
    ("content_type", "media_type"),
    [
        ("text/plain", TEXT),
        (" Text/Plain ;charset=UTF-8", TEXT),
        ('text/plain; charset="utf-8"; format=flowed', TEXT),
        ("text/plain; charset=us-ascii", TEXT),
        ("text/csv; header=present; charset=utf-8", CSV),
        ("text/tab-separated-values", CSV),
        ("application/jsonl", NDJSON),
        ("application/ndjson", NDJSON),
        ("application/x-jsonlines", NDJSON),
    ],
)
def test_a_format_has_several_names_and_parameters(content_type: str, media_type: str) -> None:
    assert read_content_type(content_type, (TEXT, CSV, NDJSON)) == media_type


@pytest.mark.parametrize(
    ("content_type", "message"),
    [
        (None, "The body is without a media type; send it as text/plain or application/json."),
        ("text/csv", "The body is text/csv; send it as text/plain or application/json."),
        ("x" * 100, f"The body is {'x' * 80}; send it as text/plain or application/json."),
        ("text/plain; charset=Latin-1; x=y", "The body is in the encoding latin-1; send it in UTF-8."),
    ],
)
def test_another_format_or_encoding_is_refused_with_those_that_are_read(content_type: str | None, message: str) -> None:
    with pytest.raises(UnsupportedBody) as caught:
        read_content_type(content_type, (TEXT, JSON))
    assert caught.value.message == message


def test_a_media_type_is_read_without_its_parameters() -> None:
    assert [media_type_of(one) for one in (None, "", "Application/JSON; x=y")] == ["", "", "application/json"]
