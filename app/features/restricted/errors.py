"""The errors of restricted values."""

from __future__ import annotations

from app.errors import InvalidAnswer, InvalidRequest, UpstreamRefused


class NotRestricted(InvalidRequest):
    """This resolver reads no restricted values of this prefix; /api/handles/ has the public values of every name."""

    status = 404
    token = "not-restricted"
    title = "Restricted values of the prefix are not read here"


class ChallengeRefused(InvalidAnswer):
    """The handle server sent a challenge that must not be answered, so this resolver did not prove its identity."""

    token = "challenge-refused"
    title = "The challenge of the handle server is not safe to answer"


class IdentityRefused(UpstreamRefused):
    """The handle server does not accept the identity of this resolver; the operator finds the reason in the log."""

    token = "identity-refused"
    title = "The handle server refused the identity of this resolver"
