"""Problem details as the API's documentation has them."""

from __future__ import annotations

from pydantic import BaseModel, Field


class SuggestionModel(BaseModel):
    """A name that the writer may have meant."""

    doi: str = Field(examples=["10.1000/182"])
    rule: str = Field(description="The repair that led to it.", examples=["trailing-punctuation"])


class ProblemModel(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(description="A URL of the page `/docs`; its fragment is stable.", examples=["/docs#not-found"])
    title: str = Field(description="What the type means.", examples=["The name is not registered"])
    status: int = Field(description="The status of the answer.", examples=[404])
    detail: str = Field(description="What is wrong with this request.")
    doi: str | None = Field(None, description="The name as the client spelled it, if it could be read.")
    suggestions: list[SuggestionModel] | None = Field(None, description="Names that the client may have meant.")
    retry_after: int | None = Field(None, description="Seconds to wait, as in Retry-After.")
