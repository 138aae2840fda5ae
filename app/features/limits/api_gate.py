"""Refuses requests for our own JSON endpoints that are over the limits of their client, or too long."""

from __future__ import annotations

from app.errors import DoiProxyError, NameTooLong
from app.features.limits.limits import ClientLimits
from app.web.problem import error_problem
from app.web.request import Request
from app.web.request_path import MAX_REQUEST_TARGET_BYTES
from app.web.responses import Reply


def refuse(request: Request, limits: ClientLimits, base: str) -> Reply | None:
    """The refusal of a request as a problem (RFC 9457), or None. `base` is the path of this resolver."""
    try:
        if limits.is_active:
            limits.admit(request)
        if len(request.path) + len(request.query) > MAX_REQUEST_TARGET_BYTES:
            raise NameTooLong(f"The address is longer than {MAX_REQUEST_TARGET_BYTES} bytes; send the texts by POST.")
    except DoiProxyError as error:
        return error_problem(error, base=base)
    return None
