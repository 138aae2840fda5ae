"""Headers that a record adds to its redirect, by 10320/headers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from pydantic import Field, field_validator

from doi_proxy.features.feature import Feature
from doi_proxy.system.options import SettingsGroup, TextList

if TYPE_CHECKING:
    from doi_proxy.features.feature import Core, Others, Part
    from doi_proxy.system.check import Finding, Inspection

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


class HeadersOfRecords(Feature):
    """Lets redirects have the headers that the operator allows."""

    name = "record_headers"
    summary = "headers that a record adds to its redirect, by 10320/headers"
    settings = RecordHeaderSettings

    @classmethod
    def check(cls, inspection: Inspection) -> Iterator[Finding]:
        """Names that no record may set."""
        from doi_proxy.features.record_headers.headers import read_allowed

        setting = inspection.settings.group(RecordHeaderSettings).record_headers
        yield from inspection.find_refusal("record_headers", lambda: read_allowed(setting))

    def open(self, core: Core, others: Others) -> Iterable[Part]:
        """Raises ConfigurationError for a name that no record may set."""
        from doi_proxy.features.record_headers.headers import RecordHeaders, read_allowed

        allowed = read_allowed(self.context.settings.group(RecordHeaderSettings).record_headers)
        return (RecordHeaders(allowed),) if allowed else ()
