"""The contact on the pages, how long browsers keep answers, and redirects through the library."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from app.features.options import RELOADED, SettingsGroup


class WebSettings(SettingsGroup):
    """The contact on the pages, how long browsers keep answers, and redirects through the library."""

    library_rules: Path | None = Field(
        None,
        description="TOML file of rules that lead readers through a service of the library, such as EZproxy. A change "
        "takes effect without a reload.",
        json_schema_extra=RELOADED,
    )
    library_cookie_seconds: float = Field(
        180 * 86400.0, gt=0, description="Seconds for which a browser keeps a reader's choice of a library service."
    )
    suggestion_queries: int = Field(
        2,
        ge=0,
        le=5,
        description="Limit of upstream queries for one not-found page that find out which suggested names exist. All "
        "other queries go first. With 0, the rules alone decide the order.",
    )
    suggestion_concurrency: int = Field(
        8,
        ge=1,
        le=1_000,
        description="Limit of these queries under way in one process, for all clients together. At the limit, a page "
        "is sent without a query.",
    )
    suggestion_timeout: float = Field(1.0, gt=0, description="Seconds that a not-found page waits for these queries.")
    web_contact: str | None = Field(
        None, description="Contact for users, shown on every page: an e-mail address, a URL or plain text."
    )
    web_parse_max_names: int = Field(10_000, ge=1, description="Largest number of texts in one `POST /api/parse`.")
    web_parse_max_bytes: int = Field(1024 * 1024, ge=1, description="Largest body of `POST /api/parse`, in bytes.")
    web_compression_min_bytes: int = Field(
        8_192,
        ge=256,
        description="Smallest answer that is sent compressed to clients that accept it, in bytes.",
    )
    web_compression_memory_bytes: int = Field(
        16 * 1024 * 1024, ge=0, description="Memory for compressed answers, in bytes, for each process."
    )
    web_max_age: float = Field(
        300.0,
        ge=0,
        description="Upper limit of max-age sent to browsers, in seconds. A low value makes a corrected target "
        "visible sooner.",
    )
