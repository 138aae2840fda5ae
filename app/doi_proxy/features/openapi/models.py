"""The JSON of the paths of names, for the OpenAPI document alone. The application writes it without these models."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from doi_proxy.endpoints.suggestion_model import SuggestionModel


class HandleValueModel(BaseModel):
    """One value of a record. Other members pass through as the upstream sent them."""

    index: int = Field(examples=[1])
    type: str = Field(examples=["URL"])
    data: dict[str, Any] | str = Field(examples=[{"format": "string", "value": "http://www.doi.org/hb.html"}])
    ttl: int | str | None = Field(None, description="Seconds, or an ISO 8601 time.", examples=[86400])
    timestamp: str | None = Field(None, examples=["2004-01-21T14:14:17Z"])


class RegistrySourceModel(BaseModel):
    """The file of a registration agency that a record is from."""

    agency: str = Field(description="Empty if the file does not name it.", examples=["Crossref"])
    date: str = Field(description="When the file says that it was true.", examples=["2026-03-01T00:00:00Z"])


class HandleAnswerModel(BaseModel):
    """An answer of the handle API."""

    responseCode: int = Field(
        description="1 found, 100 not found, 200 no such values, 2 could not verify, 4 and 102 bad request.",
        examples=[1],
    )
    handle: str | None = Field(None, description="The name as the client spelled it.", examples=["10.1000/182"])
    values: list[HandleValueModel] | None = None
    message: str | None = Field(None, description="Why the request failed.")
    registry: RegistrySourceModel | None = Field(
        None,
        description="Present if the record is from a registration agency's file, and no upstream has confirmed it.",
    )


class AgencyModel(BaseModel):
    """The registration agency of a name: `RA`, or `status` if the agency is not known."""

    DOI: str = Field(description="The name as the client spelled it.", examples=["10.1000/182"])
    RA: str | None = Field(None, examples=["DataCite"])
    status: str | None = Field(None, examples=["DOI does not exist"])


class ProblemModel(BaseModel):
    """A problem as the description of the API has it (RFC 9457)."""

    type: str = Field(description="A URL of the page `/docs`; its fragment is stable.", examples=["/docs#not-found"])
    title: str = Field(description="What the type means.", examples=["The name is not registered"])
    status: int = Field(description="The status of the answer.", examples=[404])
    detail: str = Field(description="What is wrong with this request.")
    doi: str | None = Field(None, description="The name as the client spelled it, if it could be read.")
    suggestions: list[SuggestionModel] | None = Field(None, description="Names that the client may have meant.")
    retry_after: int | None = Field(None, description="Seconds to wait, as in Retry-After.")
