"""Suggested names and readings in the JSON of the endpoints that have some."""

from __future__ import annotations

from pydantic import BaseModel, Field

from doi_names.repair.table import Confidence


class SuggestionModel(BaseModel):
    """A name that the writer may have meant."""

    doi: str = Field(examples=["10.1000/182"])
    rule: str = Field(description="The repair that led to it.", examples=["trailing-punctuation"])
    exists: bool | None = Field(None, description="In a row of a list: whether it exists. Null if this is not known.")


class ReadingModel(BaseModel):
    """The likeliest reading of a text."""

    doi: str = Field(examples=["10.1000/182"])
    confidence: Confidence = Field(
        description="How certain it is: the text as it stands, its most doubtful repair, or derived from another "
        "identifier."
    )
    rule: str | None = Field(description="The first repair; null for a literal reading.", examples=["label"])
