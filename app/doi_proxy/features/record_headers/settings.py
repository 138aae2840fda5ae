"""The headers that records may set."""

from __future__ import annotations

import re
from typing import Final

from pydantic import Field, field_validator

from doi_proxy.features.options import SettingsGroup
from doi_proxy.features.setting_values import TextList

_NAME: Final = re.compile(r"[A-Za-z0-9-]+")


class RecordHeaderSettings(SettingsGroup):
    """The headers that records may set."""

    record_headers: TextList = Field(
        (),
        description="Headers that 10320/headers values are allowed to set on a redirect. Headers that control "
        "browsers, front proxies or the connection are refused. Set it if your own records have such "
        "values.",
    )

    @field_validator("record_headers")
    @classmethod
    def _check_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"{name[:80]!r} is not the name of a header; write names such as Link, Content-Language"
                )
        return value


SETTINGS: Final = RecordHeaderSettings
TABLES: Final = ()
