"""The log of what operators do with the admin API: one line for each action."""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from fastapi import Request

#: The member of the ASGI scope with the client's network.
CLIENT: Final = "doi_proxy.client"
# Operators filter the log by this name, which is that of an earlier module.
log = logging.getLogger("app.features.admin.http")


def audit(request: Request, action: str, what: dict[str, Any], result: str) -> None:
    """Log an action of an operator."""
    # JSON escapes line breaks, so one action is one line.
    client = request.scope.get(CLIENT, "")
    log.warning("admin: client %s, %s %s: %s", client, action, json.dumps(what), json.dumps(result)[1:-1])
