"""Judges the certificate with which the service serves HTTPS."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from doi_proxy.server.certificate import load_certificate
from doi_proxy.system.check import Finding, Inspection, find_access_problem

#: Days before the end of a certificate from which its end is a warning.
_EXPIRY_DAYS: Final = 30.0
_DAY: Final = 86_400.0


def find_certificate_problems(inspection: Inspection) -> Iterator[Finding]:
    """A certificate that cannot serve HTTPS, ends soon, or is for another host."""
    settings = inspection.settings
    certificate, key = settings.tls_cert, settings.tls_key
    name = "tls_cert" if certificate is not None else "tls_key"
    if any(path is not None and find_access_problem(path) for path in (certificate, key)):
        return
    remedy = "use a PEM certificate chain and the key that belongs to it"
    refusals = list(inspection.find_refusal(name, lambda: load_certificate(certificate, key), remedy))
    yield from refusals
    if certificate is not None and not refusals:
        yield from _judge_certificate(inspection, certificate)


def _judge_certificate(inspection: Inspection, certificate: Path) -> Iterator[Finding]:
    # The public part of `ssl` reads only certificates that it has verified.
    fields = ssl._ssl._test_decode_cert(str(certificate))  # type: ignore[attr-defined]
    source = inspection.source("tls_cert")
    days = (ssl.cert_time_to_seconds(fields["notAfter"]) - time.time()) / _DAY
    if days < 0:
        yield Finding("error", source, f"the certificate ended on {fields['notAfter']}", "renew it")
    elif days < _EXPIRY_DAYS:
        yield Finding(
            "warning", source, f"the certificate ends in {days:.0f} days, on {fields['notAfter']}", "renew it"
        )
    host = urlsplit(inspection.settings.public_url or "").hostname
    names = [value.lower() for _, value in fields.get("subjectAltName", ())]
    if host and host not in names and f"*.{host.partition('.')[2]}" not in names:
        yield Finding(
            "warning",
            source,
            f"the certificate is for {', '.join(names) or 'no host'}, and public_url has the host {host}",
            "use a certificate for that host, unless a front proxy serves HTTPS",
        )
