"""Query parameters that an endpoint does not know, and that are likely slips for one that it knows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

from fastapi.dependencies.models import Dependant
from pydantic import BaseModel

from doi_proxy.errors import InvalidParameter

#: `sugest` and `suggest` have a similarity of 0.92, `fromat` and `format` 0.83, `utm_source` and `output` 0.38.
_SIMILARITY: Final = 0.75
#: Unknown parameters of a request that are compared. Each is compared with all known ones in 0.04 ms.
_MAX_COMPARED: Final = 16
_MAX_NAME_CHARACTERS: Final = 20


def list_parameters(dependant: Dependant) -> frozenset[str]:
    """The query parameters of an endpoint."""
    names = set[str]()
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            names |= model.model_fields.keys()
        else:
            names.add(field.alias)
    return frozenset(names)


def refuse_slips(sent: Iterable[str], known: Collection[str]) -> None:
    """Raise InvalidParameter for the first parameter that looks like a known one. Any other is ignored."""
    unknown = (name for name in sent if name not in known and len(name) <= _MAX_NAME_CHARACTERS)
    for name in islice(unknown, _MAX_COMPARED):
        similar = get_close_matches(name.lower(), known, n=1, cutoff=_SIMILARITY)
        if similar:
            raise InvalidParameter(f"{name}: this parameter is not known. Did you mean {similar[0]}?")
