"""The answers of /healthz and /readyz. Neither sends a query to the upstream."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Health(BaseModel):
    """The process runs."""

    status: str = Field("ok", examples=["ok"])


class UpstreamReadiness(BaseModel):
    """One upstream. `state` is that of the service, the rest is of this process. Details: the log and `/metrics`."""

    number: int = Field(description="The upstream's number, from 1 in the order of the settings.", examples=[1])
    state: Literal["unknown", "ok", "failing", "backing-off"] = Field(
        description="`unknown` before the first query; `backing-off` during a pause that it requested (Retry-After)."
    )
    breaker: Literal["closed", "half-open", "open"] = Field(description="The circuit breaker.")
    retry_after: int | None = Field(None, description="Seconds until the next query, during a pause that it requested.")


class ProblemPlace(BaseModel):
    """Where a file of local records has a problem. The log has the message."""

    file: str = Field(description="The name of the file without its folder.", examples=["local-records.toml"])
    line: int = Field(description="The line, from 1; 0 for the whole file.", examples=[12])
    column: int = Field(description="The column, from 1; 0 for the whole file.", examples=[1])


class LocalReadiness(BaseModel):
    """The local records of this process."""

    state: Literal["ok", "broken"] = Field(
        description="`broken` while a file has an error; then earlier records are in force."
    )
    records: int = Field(description="The number of records in force.", examples=[3])
    problems: list[ProblemPlace] = Field(default_factory=list, description="Errors and warnings, the first ten.")


class Readiness(BaseModel):
    """The process can answer. An upstream that is down does not make it unready: its records are the reason to stay."""

    ready: bool = Field(description="Whether requests should be sent here.")
    detail: dict[str, str] = Field(default_factory=dict, description="One word for each part.")
    upstreams: list[UpstreamReadiness] = Field(default_factory=list, description="Each upstream; none if sealed.")
    local_records: LocalReadiness | None = Field(
        None, description="The local records, null without the setting `local_records`."
    )
