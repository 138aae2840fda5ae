"""The listener of the native Handle protocol."""

from __future__ import annotations

from typing import Final

from pydantic import Field, field_validator

from doi_proxy.features.options import SettingsGroup, is_host_and_port


class NativeListenerSettings(SettingsGroup):
    """The listener of the native Handle protocol."""

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


SETTINGS: Final = NativeListenerSettings
TABLES: Final = ("native",)
