"""The admin API: look at an entry, refresh, purge, reload, deny a client."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from doi_proxy.errors import ConfigurationError, RateExceeded
from doi_proxy.features.admin.settings import AdminSettings
from doi_proxy.features.feature import NOTHING, Context, Feature, Opened
from doi_proxy.features.options import Settings
from doi_proxy.rationing.client_buckets import ClientBuckets
from doi_proxy.web.client_network import client_of

if TYPE_CHECKING:
    from doi_proxy.features.admin.application import AdminApplication


def open_admin(context: Context) -> Opened:
    """The gate with the API behind it, if there is a token."""
    settings = context.settings.group(AdminSettings)
    if settings.admin_token is None:
        context.reloads.on_reload(_refuse_first_token, "admin_token")
        return NOTHING
    # Most services have no token: their start imports none of this.
    from doi_proxy.features.admin.actions import build_actions, share_purges  # noqa: PLC0415
    from doi_proxy.features.admin.application import AdminApplication  # noqa: PLC0415
    from doi_proxy.features.admin.gate import WRONG_TOKEN_RATE, WRONG_TOKENS, AdminGate  # noqa: PLC0415
    from doi_proxy.features.admin.http import create_admin  # noqa: PLC0415

    core, purges = context.core, share_purges(context)
    gate = AdminGate(
        create_admin(context.facts.version, build_actions(context, purges), core.link.base),
        token=settings.admin_token,
        attempts=ClientBuckets(WRONG_TOKENS, WRONG_TOKEN_RATE, RateExceeded, context.clock),
        client_of=client_of,
        base=core.link.base,
        has_listener=settings.admin_listen is not None,
    )
    context.reloads.on_reload(lambda new: gate.set_token(new.group(AdminSettings).admin_token), "admin_token")
    if settings.admin_listen is None:
        return Opened(gates=(gate,), services=(purges,))

    def listen(stages: Any, connections: object) -> AdminApplication:
        return AdminApplication(gate, stages, timer=time.perf_counter, connections=connections)

    return Opened(gates=(gate,), services=(purges,), listeners={"admin_listen": listen})


def _refuse_first_token(new: Settings) -> None:
    """A process that began without the admin API does not open it later."""
    if new.group(AdminSettings).admin_token is not None:
        raise ConfigurationError("the admin API has its first token; restart the service to open the API")


FEATURE: Final = Feature(
    "admin",
    "the admin API, and the commands on the store: export, warm, show, refresh, purge",
    needs=("bundles", "texts"),
    open=open_admin,
)
