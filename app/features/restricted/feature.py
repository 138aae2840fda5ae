"""Restricted values of handle servers, for authorised readers. Off without `native_restricted`."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from app.errors import ConfigurationError, RateExceeded
from app.features.check import Finding, Inspection
from app.features.feature import NOTHING, Context, Feature, Opened
from app.features.options import Settings
from app.features.restricted.metrics import READS
from app.features.restricted.settings import RestrictedSettings

if TYPE_CHECKING:
    from app.features.restricted.file import RestrictedAccess

log = logging.getLogger(__name__)

_SALT_BYTES: Final = 16


def open_restricted(context: Context) -> Opened:
    """The gate before restricted values, if there is a file."""
    access = _read(context.settings)
    if access is None:
        context.reloads.on_reload(_refuse_first_file, "native_restricted")
        return NOTHING
    # Most services have no such file: their start imports none of this.
    from app.features.client_buckets import ClientBuckets  # noqa: PLC0415
    from app.features.restricted.gate import WRONG_TOKEN_RATE, WRONG_TOKENS, ReaderGate  # noqa: PLC0415
    from app.features.restricted.reader import RestrictedReader  # noqa: PLC0415

    reader = RestrictedReader(context.core, access, time.monotonic)
    gate = ReaderGate(
        reader,
        access.readers,
        admit=context.admit,
        attempts=ClientBuckets(WRONG_TOKENS, WRONG_TOKEN_RATE, RateExceeded, context.clock),
        public_url=context.facts.public_url,
        count=context.meter.counter(READS),
        base=context.core.link.base,
    )

    def reload(new: Settings) -> None:
        changed = _read(new)
        if changed is None:
            raise ConfigurationError("native_restricted has gone; restart the service to close /api/restricted/")
        reader.use(changed)
        gate.set_readers(changed.readers)

    context.reloads.on_reload(reload, "native_restricted")
    return Opened(reader_gates=(gate,), services=(reader,))


def _read(settings: Settings) -> RestrictedAccess | None:
    path = settings.group(RestrictedSettings).native_restricted
    if path is None or settings.mode == "sealed":
        return None
    from app.features.restricted.check import refuse_settings  # noqa: PLC0415 - see open_restricted
    from app.features.restricted.file import read_access  # noqa: PLC0415 - see open_restricted

    try:
        access = read_access(path, secrets.token_bytes(_SALT_BYTES))
        refuse_settings(settings, access)
    except ConfigurationError as error:
        raise ConfigurationError(f"native_restricted: {error.message}") from error
    for secret in access.exposed:
        log.warning("every user of this machine can read %s, a secret of restricted values", secret)
    return access


def _refuse_first_file(new: Settings) -> None:
    """A process that began without restricted values does not open them later."""
    if new.group(RestrictedSettings).native_restricted is not None and new.mode != "sealed":
        raise ConfigurationError("native_restricted is new; restart the service to open /api/restricted/")


def _check(inspection: Inspection) -> Iterator[Finding]:
    """What is wrong with the file, its keys, its prefixes and its readers."""
    from app.features.restricted.check import find_restricted_problems  # noqa: PLC0415 - see open_restricted

    return find_restricted_problems(inspection)


FEATURE: Final = Feature(
    "restricted",
    "restricted values of handle servers, for authorised readers",
    needs=("native",),
    open=open_restricted,
    check=_check,
)
