"""What `/api/proof` returns. The OpenAPI document is made from these models."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class ProofMessageModel(BaseModel):
    """A signed answer. Bytes are in base64."""

    handle: str = Field(description="The handle that the request is about.", examples=["0.NA/10.1000"])
    request: str = Field(description="The request, a message of the native Handle protocol.")
    answer: str = Field(description="The answer, a message of the native Handle protocol.")
    signed: str = Field(description="The part of the answer that the signature covers.")
    signature: str
    digest: str = Field(description="The digest of the signature.", examples=["SHA-256"])
    key: str = Field(description="The key of the server that signed, in PEM.")
    expires: str = Field(description="The signed time at which the answer expires.", examples=["2026-01-01T00:00:00Z"])


class ProofModel(BaseModel):
    """What a handle server said about a name, and the signatures from the root to it."""

    proof: Literal[1] = Field(description="The version of this form.")
    handle: str = Field(examples=["10.1000/182"])
    result: Literal["values", "handle-not-found", "values-not-found"]
    values: list[dict[str, Any]] = Field(description="The values of the record, as `/api/handles` has them.")
    time: str = Field(description="When this proxy received the answer. No signature covers it.")
    expires: str = Field(description="The first time at which one of the messages expires.")
    root: list[str] = Field(description="Signed answers about the root, if its keys or sites have changed.")
    messages: list[ProofMessageModel] = Field(description="From the answer of the root to that about the name.")
