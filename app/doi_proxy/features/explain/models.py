"""What `/admin/explain` returns."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

#: The decisions, in the order in which a request meets them.
DecisionName = Literal[
    "admitted", "local record", "cache", "back-off", "budget", "upstream", "alias", "location", "target", "rule",
    "headers",
]  # fmt: skip


class DecisionReport(BaseModel):
    """One decision."""

    decision: DecisionName
    result: str = Field(description="The decision in a few words.", examples=["answer"])
    reason: str = Field(description="What it was made from.")
    settings: dict[str, str | None] = Field(description="The settings that it depends on, with secrets masked.")


class ExplainReport(BaseModel):
    """Why a client gets its answer about a name."""

    doi: str = Field(examples=["10.1000/182"])
    client: str = Field(description="The address of the client.", examples=["192.0.2.7"])
    status: int | None = Field(description="The status that the client gets; null if the upstream decides it.")
    location: str | None = Field(description="Where the redirect leads; null without one.")
    decisions: list[DecisionReport] = Field(description="Every decision, in order.")
