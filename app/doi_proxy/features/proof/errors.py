"""The errors of proofs."""

from __future__ import annotations

from doi_proxy.errors import InvalidRequest


class NotVerified(InvalidRequest):
    """The cache has no proof of this name; request the name with cert, and see upstream_verify in docs/native.md."""

    status = 404
    token = "not-verified"
    title = "The cache has no proof of the name"
