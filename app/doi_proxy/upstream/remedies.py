"""What an operator can do about an upstream that cannot be reached, by the words of the failure."""

from __future__ import annotations

from typing import Final

CORRECT_ADDRESS: Final = "correct the address, or allow this machine to reach it; HTTPS_PROXY names an egress proxy"
#: Words in the messages of OpenSSL, the resolver of names and the kernel, and what to do. The first one counts.
_REMEDIES: Final = (
    ("certificate has expired", "check the clock of this machine; otherwise the upstream must renew its certificate"),
    ("certificate is not yet valid", "check the clock of this machine"),
    ("certificate is not valid for", "correct the address of the upstream: its certificate is for another host"),
    ("certificate", "set upstream_ca_bundle to the certificate authority of the upstream, or of the egress proxy"),
    ("wrong_version_number", "correct the address of the upstream: this port does not speak TLS"),
    ("connect call failed", CORRECT_ADDRESS),
    ("name resolution", "check the DNS of this machine"),
    ("name or service not known", "correct the address of the upstream, or check the DNS of this machine"),
    ("no address associated", "correct the address of the upstream, or check the DNS of this machine"),
)


def find_remedy(detail: str) -> str:
    """What to do about a failure with this text. Empty if no remedy is known."""
    text = detail.lower()
    return next((remedy for words, remedy in _REMEDIES if words in text), "")
