"""`GET /api/proof/<name>`: what a handle server signed about a name, and the keys up to the root."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import FastAPI, Path, Request, Response
from pydantic import BaseModel, Field

from doi_names.prefix_record import without_home
from doi_names.presentation import read_path
from doi_proxy.cache.entry import Entry
from doi_proxy.endpoints.own_pages import text_headers
from doi_proxy.endpoints.problem_responses import problem_responses
from doi_proxy.features.proof.feature import PROOF_PATH, NotVerified
from doi_proxy.web.freshness import NO_STORE
from doi_proxy.web.media_types import JSON
from handle_protocol.answer import ProvenAnswer
from handle_protocol.errors import HandleProtocolError
from handle_protocol.proof import MAX_PROOF_BYTES

if TYPE_CHECKING:
    from doi_proxy.features.feature import Core
    from handle_protocol.referral import HandleService


_NOT_KEPT: Final = (
    f"The answer about this name was verified, and its proof was not kept: it has over {MAX_PROOF_BYTES} bytes, or the "
    "answers that lead from the root are not known."
)


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


def add_proof(app: FastAPI, core: Core, root: HandleService | None) -> None:
    """Add the route. `root` is the operator's; None if no answer can be verified from it."""
    # Verifying takes milliseconds of a thread. One proof at a time leaves the other threads to other requests.
    turn = asyncio.Lock()

    async def get_proof(request: Request, name: Annotated[str, Path(examples=["10.1000/182"])]) -> Response:
        """The signed messages that prove what the cache says about a name.

        They are kept for answers that were verified from the root: after a request with `cert`, or with
        `upstream_verify = "always"`.
        """
        # The framework decodes the path with loss.
        asked = read_path(b"/" + request.scope["raw_path"].partition(PROOF_PATH.encode())[2])
        known = without_home(asked)
        # A proof of what the operator withdrew would publish it.
        is_local = core.resolver.is_local(asked) or core.resolver.is_local(known)
        entry = None if root is None or is_local else await core.cache.get(known.key)
        if root is None or entry is None or not entry.answer.is_verified:
            raise NotVerified
        if not isinstance(entry.answer, ProvenAnswer):
            raise NotVerified(_NOT_KEPT)
        async with turn:
            body = await asyncio.to_thread(_write, root, known.text, entry)
        return Response(body, media_type=JSON, headers=text_headers(NO_STORE))

    app.add_api_route(
        PROOF_PATH + "{name:path}",
        get_proof,
        methods=["GET"],
        tags=["Resolve"],
        summary="Prove an answer",
        response_model=ProofModel,
        response_description="The messages, their signatures and keys.",
        responses=problem_responses({404: "The cache has no proof of the name.", 429: "The client is over its limit."}),
    )
    app.add_api_route(PROOF_PATH + "{name:path}", get_proof, methods=["HEAD"], include_in_schema=False)


def _write(root: HandleService, text: str, entry: Entry) -> bytes:
    # The import loads the library of signatures.
    from handle_protocol.proof_document import write_proof_of_answer  # noqa: PLC0415

    try:
        return write_proof_of_answer(root, text, entry.answer, entry.fetched_at)
    except HandleProtocolError as error:
        raise NotVerified(f"The proof of this name does not hold any more: {error.message}") from error
