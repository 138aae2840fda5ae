"""Cookies that are forged, giant and many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil

from bench.attacks.world import Checkout, Proxy, Reply, Row, get, proxy, upstream

_NAME: Final = "/10.1000/182"
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
