"""Lists of names: the verdict on each of up to a million."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from app.features.feature import Context, Feature, Opened, required
from app.features.lists.answer import BatchService, OpenBatches
from app.features.lists.batch import build_batches
from app.features.lists.body import ListLimits
from app.features.lists.http import RESOLVE_PATH, add_resolve
from app.features.lists.metrics import ROWS
from app.features.lists.settings import BatchSettings
from app.features.metadata.feature import find_comparison
from app.features.refusals import REFUSED
from app.features.suggestions.suggested_names import SuggestedNames
from app.web.client_network import client_of
from app.web.operations import Face


def open_lists(context: Context) -> Opened:
    """The endpoint /api/resolve."""
    settings, core = context.settings.group(BatchSettings), context.core
    names = required(context.find(SuggestedNames))
    compare = find_comparison(context)
    batches = build_batches(context.settings, core, names, context.clock, context.meter.counter(ROWS), compare)
    open_lists = OpenBatches(settings.batch_max_open, context.meter.counter(REFUSED))
    service = BatchService(batches, open_lists, ListLimits(names=settings.batch_max_names))

    context.provide(service)

    def add(app: FastAPI, face: Face) -> None:
        add_resolve(app, service, client_of)

    return Opened(routes=(add,), own_api={RESOLVE_PATH.encode(): "batch"})


FEATURE: Final = Feature(
    "lists",
    "lists of up to a million names, by HTTP and as a command",
    needs=("suggestions", "metadata"),
    open=open_lists,
)
