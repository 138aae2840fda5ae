"""A suggested name in the JSON of the endpoints that have some."""

from __future__ import annotations

from pydantic import BaseModel, Field


class SuggestionModel(BaseModel):
    """A name that the writer may have meant."""

    doi: str = Field(examples=["10.1000/182"])
    rule: str = Field(description="The repair that led to it.", examples=["trailing-punctuation"])
