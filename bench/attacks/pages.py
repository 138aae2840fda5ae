"""Floods of pages and cookies: a QR code for each of many names, and cookies that are forged, giant and many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil

from bench.attacks.connections import ATTACKER, OTHER
from bench.attacks.world import Checkout, Peak, Probe, Proxy, Reply, Row, get, proxy, upstream

_NAME: Final = "/10.1000/182"
#: Pages of different names: codes of the largest size, and names too long for a code.
_PAGES: Final = 1_500
_CODED, _LONG = "/10.1000/{:0170}?noredirect", "/10.1000/{:02000}?noredirect"
_PLAIN: Final = "/10.1000/182?noredirect"
#: The memory that a flood may gain: 256 codes of 15 kB, records, and what the allocator keeps.
_MAX_GAINED: Final = 60
_MIB: Final = 1024 * 1024
_SERVICE: Final = "https://library.example/login"
_RULES: Final = f"""
[[service]]
name = "ezproxy"
label = "Library"
kind = "ezproxy"
url = "{_SERVICE}"

[[rule]]
service = "ezproxy"
outside = ["127.0.0.0/8"]
"""
_FORGED: Final = {
    "no cookie (control)": "",
    "the URL of another host": "Library-OpenURL=https://evil.example/login?url=",
    "a service with a suffix": f"Library-OpenURL={_SERVICE}https://evil.example/",
    "CR LF, encoded": "Library-OpenURL=https%3A%2F%2Fevil.example%0D%0ASet-Cookie%3A%20x%3D1",
    "NUL and bytes that are not UTF-8": "Library-OpenURL=%00%ff%fe",
    "60,000 characters": "Library-OpenURL=" + "a" * 60_000,
    "9,000 cookies": "; ".join(f"c{number}=1" for number in range(9_000)),
    "3,000 of this name": "; ".join(["Library-OpenURL=x"] * 3_000),
}


def codes(checkout: Checkout) -> Iterator[Row]:
    """Pages of one name, of names with a code, and of names that are too long for one."""
    for label, target in (("one name (control)", _PLAIN), ("different names", _CODED), ("long names", _LONG)):
        with upstream() as url, proxy(checkout, url) as running:
            get(running.port, _NAME)
            before, spent = running.resident(), _processor_time(running)
            with Peak(running.resident) as most, Probe(running.port, _NAME, source=OTHER) as probe:
                replies = [get(running.port, target.format(number), source=ATTACKER) for number in range(_PAGES)]
            spent = _processor_time(running) - spent
        gained, answered = (most.highest - before) / _MIB, sum(reply.status == 200 for reply in replies)
        yield Row(
            f"{_PAGES:,} pages of {label}: answered; memory gained; processor time of each; another client's failures",
            f"{answered}; {gained:.0f} MB; {1_000 * spent / _PAGES:.1f} ms; {len(probe.replies) - probe.count(302)}",
            answered == _PAGES and gained < _MAX_GAINED and probe.count(302) == len(probe.replies),
        )


def cookies(checkout: Checkout) -> Iterator[Row]:
    """Cookies that lead nowhere but to a configured service."""
    with tempfile.TemporaryDirectory() as folder, upstream() as url:
        rules = Path(folder, "rules.toml")
        rules.write_text(_RULES)
        settings: dict[str, Any] = {"library_rules": rules}
        with proxy(checkout, url, **settings) as running:
            expected = get(running.port, _NAME).location
            chosen = get(running.port, _NAME, Accept="text/html", Cookie=f"Library-OpenURL={_SERVICE}").location
            yield Row("the cookie of the service (control)", chosen, chosen.startswith(_SERVICE))
            for label, cookie in _FORGED.items():
                before = _processor_time(running)
                replies = [get(running.port, _NAME, Accept="text/html", Cookie=cookie) for _ in range(20)]
                spent = (_processor_time(running) - before) / 20
                right = sum(_is_safe(reply, expected) for reply in replies)
                yield Row(
                    f"{label}: redirects to the target, or 431, of 20; processor time of each",
                    f"{right}; {1_000 * spent:.1f} ms",
                    right == len(replies) and spent < 0.02,
                )


def _is_safe(reply: Reply, expected: str) -> bool:
    return (reply.status == 302 and reply.location == expected) or reply.status == 431


def _processor_time(running: Proxy) -> float:
    return float(sum(psutil.Process(running.process.pid).cpu_times()[:2]))
