"""Lists of names: the verdict on each of up to a million."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from doi_proxy.features.feature import Context, Feature, Opened, required
from doi_proxy.features.lists.answer import BatchService, OpenBatches
from doi_proxy.features.lists.batch import build_batches
from doi_proxy.features.lists.http import RESOLVE_PATH, add_resolve
from doi_proxy.features.lists.metrics import ROWS
from doi_proxy.features.metadata.feature import find_comparison
from doi_proxy.features.refusals import REFUSED
from doi_proxy.features.suggestions.suggested_names import SuggestedNames
from doi_proxy.features.texts.body import ListLimits
from doi_proxy.web.client_network import client_of
from doi_proxy.web.operations import Face

#: Long lists that one worker process answers at a time, beside twice as many short ones. 16 clients that send all they
#: may, and never read, take less than 100 MB (`python -m bench.attacks unread`).
MAX_OPEN: Final = 16
#: Names in one list. At 10 queries a second, a million new names take a day.
MAX_NAMES: Final = 1_000_000


def open_lists(context: Context) -> Opened:
    """The endpoint /api/resolve."""
    core = context.core
    names = required(context.find(SuggestedNames))
    compare = find_comparison(context)
    batches = build_batches(context.settings, core, names, context.clock, context.meter.counter(ROWS), compare)
    open_lists = OpenBatches(MAX_OPEN, context.meter.counter(REFUSED))
    service = BatchService(batches, open_lists, ListLimits(names=MAX_NAMES))

    context.provide(service)

    def add(app: FastAPI, face: Face) -> None:
        add_resolve(app, service, client_of)

    return Opened(routes=(add,), own_api={RESOLVE_PATH.encode(): "batch"})


FEATURE: Final = Feature(
    "lists",
    "lists of up to a million names, by HTTP and as a command",
    needs=("texts", "suggestions", "metadata"),
    open=open_lists,
)
