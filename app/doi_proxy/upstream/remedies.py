"""What an operator can do about a query that was not sent or not answered, by the failure and its words.

The words of a library also narrow the cause down: see `sign_of`.
"""

from __future__ import annotations

from typing import Final

from doi_proxy.errors import CouldNotVerify, UpstreamRefused

CORRECT_ADDRESS: Final = "correct the address, or allow this machine to reach it; HTTPS_PROXY names an egress proxy"
_EGRESS_LOGIN: Final = "set the user and the password of the egress proxy in HTTPS_PROXY or HTTP_PROXY"
_NO_ADDRESS: Final = "correct the address of the upstream, or check the DNS of this machine"
#: Words in the messages of OpenSSL, the resolver of names and the kernel, their sign, and what to do. The first counts.
_REMEDIES: Final = (
    ("answered connect with status 407", "", _EGRESS_LOGIN),
    ("answered connect with status", "", "look at the log of the egress proxy: it may not allow or reach the upstream"),
    (
        "certificate has expired",
        "certificate",
        "check the clock of this machine; otherwise the upstream must renew its certificate",
    ),
    ("certificate is not yet valid", "certificate", "check the clock of this machine"),
    (
        "certificate is not valid for",
        "certificate",
        "correct the address of the upstream: its certificate is for another host",
    ),
    (
        "certificate",
        "certificate",
        "set upstream_ca_bundle to the certificate authority of the upstream, or of the egress proxy",
    ),
    ("the egress proxy", "egress", "correct HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, or start the egress proxy"),
    ("wrong_version_number", "", "correct the address of the upstream: this port does not speak TLS"),
    ("connect call failed", "", CORRECT_ADDRESS),
    ("name resolution", "dns", "check the DNS of this machine"),
    ("name or service not known", "dns", _NO_ADDRESS),
    ("no address associated", "dns", _NO_ADDRESS),
)


#: By the HTTP status of an upstream that refuses queries. Its operator knows this service by `upstream_contact`.
_OF_STATUSES: Final = {
    401: "correct the user and the password in upstream_url: the upstream requests them",
    403: "the upstream may block this address: set upstream_contact, and write to its operator (doi.org: the DOI "
    "Foundation) with the address of this machine, the time and the User-Agent",
    407: _EGRESS_LOGIN,
    429: "lower upstream_rate, or agree with the operator of the upstream (doi.org: the DOI Foundation) on this rate",
}
_INTERCEPTED: Final = (
    "open the address of the upstream from this machine: a login portal or an intercepting proxy may answer in its "
    "place"
)
#: By the sign of the error.
_OF_SIGNS: Final = {"page": _INTERCEPTED, "redirect": _INTERCEPTED}
#: By the token of the error.
_OF_TOKENS: Final = {
    "budget-spent": "limit the clients that need most (client_rate), or agree with the upstream on a higher "
    "upstream_rate",
    "places-full": "raise upstream_max_concurrency: queries a second = places / seconds of an answer",
    "upstream-slow": "wait, or find out what is slow between here and the upstream; a higher upstream_max_concurrency "
    "lets more queries wait for it",
    "resources-short": "raise the limit, or lower max_connections and cache_memory_bytes",
    "upstream-bad-answer": _INTERCEPTED,
    "upstream-refused": "wait: the upstream itself fails or is overloaded",
    "upstream-timeout": "wait, or find out what hangs between here and the upstream: curl from this machine shows it",
    "upstream-unreachable": "wait, or look at the network and the firewall; HTTPS_PROXY names an egress proxy",
}


def find_remedy(detail: str) -> str:
    """What to do about a failure with this text. Empty if no remedy is known."""
    text = detail.lower()
    return next((remedy for words, _, remedy in _REMEDIES if words in text), "")


def sign_of(error: CouldNotVerify) -> str:
    """What narrows the token of an error down: its sign, `dns` or `certificate`. Empty if nothing does."""
    text = error.detail.lower()
    return error.sign or next((sign for words, sign, _ in _REMEDIES if words in text), "")


def remedy_of(error: CouldNotVerify) -> str:
    """What to do about an error. Empty if no remedy is known."""
    if isinstance(error, UpstreamRefused) and error.upstream_status in _OF_STATUSES:
        return _OF_STATUSES[error.upstream_status]
    return find_remedy(error.detail) or _OF_SIGNS.get(error.sign) or _OF_TOKENS.get(error.token, "")
