"""The way from the operator's root to a refreshed one: answers about the root, each signed by a key of the root before.

A refreshed root is kept as these answers. So what is read after a restart is proven by the operator's file alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from handle_protocol.errors import SignatureInvalid, UnusableAnswer
from handle_protocol.referral import ROOT_HANDLE, HandleService, read_lead
from handle_protocol.signature import oldest_version, verify_signature
from handle_protocol.wire.message import OpCode, ResponseStatus
from handle_protocol.wire.response import Response, Values, decode_response
from handle_protocol.wire.site_value import encode_site

#: Answers of one chain: how often all keys of the root can be replaced before the operator gets a new file.
MAX_ANSWERS: Final = 16
#: Keys of one root that are tried. The root has fewer than ten servers.
_MAX_KEYS: Final = 64


def fingerprint(root: HandleService) -> str:
    """The SHA-256 of a root's sites, in hexadecimal. It says with which file of the operator a chain began."""
    return sha256(b"".join(map(encode_site, root.sites))).hexdigest()


def follow_chain(root: HandleService, answers: Sequence[bytes]) -> HandleService:
    """The root at the end of a chain. Raises UnusableAnswer if a link is not an answer that the root before signed."""
    if len(answers) > MAX_ANSWERS:
        raise UnusableAnswer(f"the chain has over {MAX_ANSWERS} answers")
    for answer in answers:
        root = _read_link(root, answer)
    return root


def extend_chain(root: HandleService, answers: Sequence[bytes], response: Response) -> tuple[bytes, ...]:
    """The shortest chain that ends with this answer. Raises UnusableAnswer if the chain is too long, or broken."""
    answer = response.data
    for count, link in enumerate(answers):
        try:
            _read_link(root, answer)
        except SignatureInvalid:
            root = _read_link(root, link)
        else:
            return (*answers[:count], answer)
    _read_link(root, answer)
    if len(answers) >= MAX_ANSWERS:
        raise UnusableAnswer(f"the chain would have over {MAX_ANSWERS} answers")
    return (*answers, answer)


def _read_link(root: HandleService, answer: bytes) -> HandleService:
    """The root that an answer describes. Raises UnusableAnswer, and SignatureInvalid if the signature is wrong."""
    response = decode_response(answer, digest_requested=True)
    body = response.body
    if response.header.op_code != OpCode.RESOLUTION or response.code != ResponseStatus.SUCCESS:
        raise UnusableAnswer("an answer is not about a record")
    if not isinstance(body, Values) or body.handle.upper() != ROOT_HANDLE:
        raise UnusableAnswer("an answer is not about the root")
    _verify(response, root)
    # The TTL of a kept root does not count: it is refreshed at once.
    lead = read_lead(body.values, now=0.0)
    if lead is None or not lead.sites:
        raise UnusableAnswer("an answer has no sites of the root")
    return HandleService(lead.sites, is_verified=True)


def _verify(response: Response, root: HandleService) -> None:
    pairs = [(server.public_key, site) for site in root.sites for server in site.servers if server.public_key]
    for key, site in list(dict(pairs).items())[:_MAX_KEYS]:
        try:
            verify_signature(response, key, oldest_version=oldest_version((site.major, site.minor)))
        except SignatureInvalid:
            continue
        return
    raise SignatureInvalid("no key of the root before signed an answer")
