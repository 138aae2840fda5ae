"""`doi-proxy check --size`: what a load takes, beside what the settings allow."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from doi_proxy.features.setup.sizing import Has, Load, need_of, write_rows
from doi_proxy.system.files import print_json

if TYPE_CHECKING:
    from doi_proxy.system.options import Settings


def show_size(settings: Settings, load: Load, answer: float | None, *, as_json: bool) -> int:
    """Print what the load takes. `answer` is in seconds. Returns the exit status 0."""
    has = Has(settings.upstream_rate, settings.upstream_max_concurrency, settings.instances)
    # Seconds of an answer of the public handle API: the median that docs/scale.md takes.
    need = need_of(load, answer or 0.5, settings.cache_ttl_ceiling, settings.cache_grace)
    if as_json:
        found = {**asdict(need), "load": load._asdict(), "first_limit": need.first_limit(has)}
        print_json({**found, "advice": need.advice(has)})
        return 0
    print(
        f"{load.mean * 86_400:,.0f} requests a day, and an upstream that answers in {need.answer:g} s. "
        "Everything below is computed: docs/scale.md says from what."
    )
    rows = [*write_rows([need], has), ("what to run", "; ".join(need.advice(has)))]
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        print(f"{label:{width}}  {value}")
    return 0
