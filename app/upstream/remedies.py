"""What an operator can do about an upstream that cannot be reached, by the words of the failure."""

from __future__ import annotations

from typing import Final

#: Words in the messages of OpenSSL, the resolver of names and the kernel, and what to do. The first one counts.
_REMEDIES: Final = (
    ("certificate has expired", "check the clock of this machine; otherwise the upstream must renew its certificate"),
    ("certificate is not yet valid", "check the clock of this machine"),
    ("hostname mismatch", "correct the address of the upstream: the certificate is for another host"),
    ("certificate", "set upstream_ca_bundle to the certificate authority of the upstream, or of the egress proxy"),
    ("name resolution", "check the DNS of this machine"),
    ("name or service not known", "correct the address of the upstream, or check the DNS of this machine"),
    ("no address associated", "correct the address of the upstream, or check the DNS of this machine"),
)


def find_remedy(detail: str) -> str:
    """What to do about a failure with this text. Empty if no remedy is known."""
    text = detail.lower()
    return next((remedy for words, remedy in _REMEDIES if words in text), "")
