"""The native Handle protocol for other programs: their requests are answered from the cache and the upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from doi_proxy.features.feature import Context, Feature, Opened
from doi_proxy.features.native_listener.metrics import MESSAGES
from doi_proxy.features.native_listener.settings import NativeListenerSettings
from doi_proxy.features.options import Settings

if TYPE_CHECKING:
    from doi_proxy.features.native_listener.listener import NativeServer


def open_listener(context: Context) -> Opened:
    """The listener, which the server of each worker serves."""
    from doi_proxy.features.native_listener.listener import NativeListener  # noqa: PLC0415 - 50 ms, only if it is on
    from doi_proxy.features.native_listener.responder import Responder  # noqa: PLC0415 - as above

    settings, core = context.settings.group(NativeListenerSettings), context.core
    listener = NativeListener(context.shared_file("native-udp.lock"), allows_udp=settings.native_listen_udp)

    def listen(stages: Any, connections: Any) -> NativeServer:
        responder = Responder(
            core.destinations,
            stages,
            clock=context.clock,
            count=context.meter.counter(MESSAGES),
        )
        return listener.open(responder, connections)

    return Opened(services=(listener,), listeners={"native_listen": listen})


def _is_on(settings: Settings) -> bool:
    """Whether there is an address to listen on."""
    return settings.group(NativeListenerSettings).native_listen is not None


FEATURE: Final = Feature(
    "native_listener",
    "the native Handle protocol for other programs: UDP, TCP and the HTTP tunnel",
    needs=("native",),
    is_on=_is_on,
    open=open_listener,
)
