"""What `/api/parse` returns. The OpenAPI document is made from these models."""

from __future__ import annotations

from pydantic import BaseModel, Field

from doi_names.parsing import Kind
from doi_proxy.endpoints.suggestion_model import ReadingModel, SuggestionModel


class WarningModel(BaseModel):
    """A part of a name that is allowed, and is likely a mistake."""

    code: str = Field(description="A stable token.", examples=["look-alike"])
    message: str = Field(description="A sentence with the position in the name, counted from 1.")


class ParsedTextModel(BaseModel):
    """What a text is."""

    input: str = Field(description="The text as it was sent.", examples=["https://doi.org/10.1000/182"])
    kind: Kind
    doi: str | None = Field(
        description="The DOI name or shortDOI; null if the text is neither.", examples=["10.1000/182"]
    )
    uri: str | None = Field(description="The `doi:` URI of a DOI name.", examples=["doi:10.1000/182"])
    url: str | None = Field(
        description="Its address here; null if the URL of this resolver is not known.",
        examples=["http://127.0.0.1:8000/10.1000/182"],
    )
    doi_org_url: str | None = Field(
        description="Its address at doi.org: the form to print in a reference.",
        examples=["https://doi.org/10.1000/182"],
    )
    prefix: str | None = Field(examples=["10.1000"])
    suffix: str | None = Field(examples=["182"])
    rules: list[str] = Field(description="What was undone to read the name, in this order.", examples=[["url"]])
    warnings: list[WarningModel]
    best: ReadingModel | None = Field(
        None, description="The likeliest reading: sure and likely repairs come before the text as it stands."
    )
    suggestions: list[SuggestionModel] = Field(description="The likeliest first. They are not looked up.")
    message: str | None = Field(description="Why it is not a DOI name, with the position; null if it is one.")


class ParsedItemModel(ParsedTextModel):
    """What an item of a list is."""

    line: int | None = Field(None, description="Of BibTeX and RIS: the line of the entry.")
    key: str | None = Field(None, description="The citation key of BibTeX, or the number of a RIS reference.")
