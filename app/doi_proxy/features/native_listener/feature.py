"""The native Handle protocol for other programs: their requests are answered from the cache and the upstream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from doi_proxy.features import feature
from doi_proxy.system.check import CounterData
from doi_proxy.system.options import Settings, SettingsGroup, is_host_and_port

if TYPE_CHECKING:
    from doi_proxy.features.native_listener.stream import NativeServer


class NativeListenerSettings(SettingsGroup):
    """The listener of the native Handle protocol."""

    tables = ("native",)

    native_listen: str | None = Field(
        None,
        description="Address on which programs resolve names by the native Handle protocol: a host and a port "
        "such as `127.0.0.1:2641`, for TCP, the HTTP tunnel and UDP. Set it for programs that speak "
        "that protocol.",
    )
    native_listen_udp: bool = Field(
        False,
        description="Whether `native_listen` has UDP at an address that is not a loopback address: at most 5 "
        "answers a second to a network, of at most 512 bytes. Turn it on if such programs on other "
        "machines use UDP.",
    )

    @field_validator("native_listen")
    @classmethod
    def _check_native_listen(cls, value: str | None) -> str | None:
        if value is not None and not is_host_and_port(value):
            raise ValueError(f"{value[:120]!r} is not a host and a port; write it as 127.0.0.1:2641 or [::1]:2641")
        return value


class NativeProtocol(feature.Feature):
    """The listener, which the server of the process serves."""

    name = "native_listener"
    summary = "the native Handle protocol for other programs: UDP, TCP and the HTTP tunnel"
    settings = NativeListenerSettings

    @classmethod
    def is_on(cls, settings: Settings) -> bool:
        """Whether there is an address to listen on."""
        return settings.group(NativeListenerSettings).native_listen is not None

    def open(self, core: feature.Core, others: feature.Others) -> Iterable[feature.Part]:
        """Open the listener."""
        from doi_proxy.features.native_listener.responder import Responder
        from doi_proxy.features.native_listener.stream import NativeListener

        context, settings = self.context, self.context.settings.group(NativeListenerSettings)
        listener = NativeListener(allows_udp=settings.native_listen_udp)
        # A record or "not found"; a name or an operation that this service does not answer; trouble, which says nothing
        # about a name; what UDP does not answer.
        count = core.meter.counter(
            CounterData(
                "native_listener_messages",
                "Messages to the native listener, by result.",
                "result",
                ("answered", "refused", "failed", "dropped"),
            )
        )

        def listen(stages: Any, connections: Any) -> NativeServer:
            return listener.open(Responder(core.destinations, stages, clock=context.clock, count=count), connections)

        return listener, feature.Listener("native_listen", listen)
