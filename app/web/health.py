"""Is the process alive, and can it answer? Neither question reaches the upstream."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Health(BaseModel):
    """The process runs."""

    status: str = Field("ok", examples=["ok"])


class Readiness(BaseModel):
    """The process can answer. An upstream that is down does not make it unready: its records are the reason to stay."""

    ready: bool = Field(description="Whether requests should be sent here.")
    detail: dict[str, str] = Field(default_factory=dict, description="One word or sentence for each part.")
