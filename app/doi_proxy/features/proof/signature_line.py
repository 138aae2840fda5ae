"""The line on the page of a record that says who signed its values (HS_SIGNATURE), and whether that holds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cachetools import LRUCache
from fastapi import FastAPI, Path, Request, Response
from pydantic import BaseModel, Field

from doi_names.name import PREFIX_RECORDS, HandleName, without_home
from doi_names.presentation import read_path
from doi_proxy.cache.entry import Entry
from doi_proxy.endpoints import problem_responses, text_headers
from doi_proxy.errors import FAILURES
from doi_proxy.features.proof.feature import PROOF_PATH, NotVerified
from doi_proxy.resolver.resolution import Conditions, read_record
from doi_proxy.system.eager import in_task
from doi_proxy.web.freshness import NO_STORE
from doi_proxy.web.media_types import JSON
from doi_proxy.web.stage import PageKind, Section
from handle_protocol.errors import HandleProtocolError
from handle_protocol.proof import MAX_PROOF_BYTES
from handle_protocol.referral import HandleService, ProvenAnswer
from handle_protocol.value import Record

if TYPE_CHECKING:
    from doi_proxy.features.feature import Core
    from handle_protocol.signature_chain import SignatureChain, SignatureVerdict, ValueSignature


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


class ProofLink(Section):
    """See Section."""

    template = "proof.html"

    def __init__(self, core: Core) -> None:
        self._core = core

    def read(self, kind: PageKind, name: HandleName | None, text: str) -> Mapping[str, Any]:
        """The path of the proof, if the answer in memory has one and no local record takes its place."""
        if kind not in ("values", "not_found") or name is None or self._core.resolver.is_local(name):
            return {}
        entry = self._core.cache.peek(name.key)
        is_proven = entry is not None and isinstance(entry.answer, ProvenAnswer)
        return {"is_proven": True} if is_proven else {}


#: Seconds that the page waits for the records of issuers.
_TIMEOUT: Final = 3.0


class SignatureLine(Section):
    """See Section. `root_keys` are the operator's, data of HS_PUBKEY values; empty if there are none."""

    template = "signature.html"

    def __init__(self, core: Core, root_keys: Sequence[bytes], clock: Callable[[], float]) -> None:
        self._core = core
        self._root_keys = root_keys
        self._clock = clock
        #: By the name and its values: the verdict, and when it is due again.
        # Records whose verdict is remembered, and for how many seconds.
        self._verdicts: LRUCache[tuple[str, bytes], tuple[SignatureVerdict, float]] = LRUCache(256)
        # Verifying takes milliseconds of a thread. One record at a time leaves the other threads to other requests.
        self._turn = asyncio.Lock()

    async def prepare_record(self, name: HandleName, conditions: Conditions) -> None:
        """Look up the certificates of a record with signatures and verify them, unless the verdict is known."""
        values = self._find_values(name)
        if values is None or self._recall(name, values) is not None:
            return
        # The import loads the library of signatures, in a thread: it takes 150 ms.
        await asyncio.to_thread(import_module, "handle_protocol.signature_chain")
        from handle_protocol.signature_chain import SignatureVerdict, judge_signatures, read_signatures  # noqa: PLC0415

        signatures = read_signatures(read_record(values))
        deadline = asyncio.get_running_loop().time() + _TIMEOUT
        chains = [await self._follow(signature, conditions, deadline) for signature in signatures or ()]
        verdict = SignatureVerdict("broken")
        async with self._turn:
            if self._recall(name, values) is not None:
                return
            now = self._clock()
            if chains:
                handle = name.text if "/" in name.text else PREFIX_RECORDS + name.text
                verdict = await asyncio.to_thread(judge_signatures, handle, values, chains, self._root_keys, now)
            # Seconds until it is judged again.
            due = now + (30.0 if verdict.state == "unproven" else 300.0)
            due = due if verdict.ends is None else min(due, verdict.ends)
            self._verdicts[_key(name, values)] = verdict, due

    async def _follow(self, signature: ValueSignature, conditions: Conditions, deadline: float) -> SignatureChain:
        """A signature with the certificates of its issuers, as far as they can be looked up."""
        from handle_protocol.signature_chain import (  # noqa: PLC0415 - see prepare_record
            MAX_CERTIFICATES,
            SignatureChain,
            find_certificate,
            handle_of,
            is_root,
        )

        chain, places = SignatureChain(signature), deque[str]()
        for _ in range(MAX_CERTIFICATES):
            claims = (chain.certificates or (signature,))[-1]
            if is_root(claims.issuer):
                break
            # As the reference software: the chain of one token also leads on from the certificates after it.
            places = places or deque(claims.chain[:MAX_CERTIFICATES] or (handle_of(claims.issuer),))
            place = places.popleft()
            record = await self._look_up(handle_of(place), conditions, deadline)
            certificate = None if record is None else find_certificate(record, claims.issuer, place)
            if certificate is None:
                return chain
            chain = replace(chain, certificates=(*chain.certificates, certificate))
        return replace(chain, is_whole=is_root((chain.certificates or (signature,))[-1].issuer))

    async def _look_up(self, handle: str, conditions: Conditions, deadline: float) -> Record | None:
        """The record of an issuer, at the cost of the client. None if it cannot be had."""
        try:
            name = HandleName(handle)
            if not self._core.resolver.is_local(name):
                name = without_home(name)
            if not self._core.destinations.resolves_here(name) and not self._core.resolver.is_local(name):
                return None
            await in_task()
            async with asyncio.timeout_at(deadline):
                return (await self._core.resolver.resolve(name, conditions)).record
        except (*FAILURES, TimeoutError):
            return None

    def _find_values(self, name: HandleName) -> bytes | None:
        """The values of a record with signatures, in memory."""
        found = self._core.resolver.resolve_now(name)
        entry = self._core.cache.peek(name.key) if found is None else found.entry
        # Most records have none, and a record of 256 KiB takes milliseconds to parse.
        if entry is None or b"HS_SIGNATURE" not in entry.answer.values.upper():
            return None
        if not read_record(entry.answer.values).of_type("HS_SIGNATURE"):
            return None
        return entry.answer.values

    def _recall(self, name: HandleName, values: bytes) -> SignatureVerdict | None:
        verdict, due = self._verdicts.get(_key(name, values), (None, 0.0))
        return verdict if self._clock() < due else None

    def read(self, kind: PageKind, name: HandleName | None, text: str) -> Mapping[str, Any]:
        """The verdict about the record in memory."""
        if kind != "values" or name is None or (values := self._find_values(name)) is None:
            return {}
        verdict = self._recall(name, values)
        return {} if verdict is None else {"signature": verdict, "signature_state": verdict.state}


def _key(name: HandleName, values: bytes) -> tuple[str, bytes]:
    return name.key, blake2b(values, digest_size=16).digest()
