"""The OpenAPI document: every path with its methods, parameters, statuses, media types and headers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Final

from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute

from app.features.openapi.answers import (
    HEADERS,
    MEANINGS,
    Part,
    add_headers,
    add_server_answers,
    answer,
    answers,
    content,
    header_component,
    without_content,
)
from app.features.openapi.names import AgencyModel, HandleAnswerModel, name_paths
from app.features.openapi.pages import page_paths
from app.features.openapi.parameters import LIKE, PREFLIGHT_PARAMETERS
from app.features.openapi.problem_model import ProblemModel
from app.features.status.models import STATUS_PATH
from app.web.media_types import HTML, PROBLEM

_DESCRIPTION: Final = (
    "Names are resolved as at doi.org. A method that a path does not name gets 405 with `Allow`. A program whose "
    "`Accept` prefers JSON gets errors as problem details (RFC 9457). docs/api.md says what is stable."
)
_LICENSE: Final = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
_MODELS: Final[tuple[type[BaseModel], ...]] = (HandleAnswerModel, AgencyModel, ProblemModel)
_SCHEMA: Final = "#/components/schemas/{model}"
_METHODS_OF_NAMES: Final = frozenset({"GET", "HEAD", "POST"})
_ADMIN_ERRORS: Final = (400, 401, 403, 413, 415, 429)


def write_document(
    routes: Sequence[BaseRoute], admin_routes: Sequence[BaseRoute], *, version: str, server_url: str
) -> Part:
    """The document about the routes of FastAPI, those of the admin API, and the paths of names."""
    document = get_openapi(
        title="doi-proxy",
        version=version,
        summary="A resolver for DOI names with the paths, parameters and JSON of doi.org.",
        description=_DESCRIPTION,
        license_info=_LICENSE,
        routes=[*routes, *admin_routes],
        servers=[{"url": server_url}],
    )
    methods, guarded = _methods((*routes, *admin_routes)), _methods(admin_routes)
    pages = {path: item for path, item in page_paths().items() if path in methods}
    paths = {**name_paths(), **document["paths"], **pages}
    document["paths"] = {
        path: _complete(path, item, methods.get(path, _METHODS_OF_NAMES), is_admin=path in guarded)
        for path, item in paths.items()
    }
    document["components"] = _components(document.get("components", {}), has_admin=bool(admin_routes))
    return document


def _methods(routes: Iterable[BaseRoute]) -> dict[str, set[str]]:
    """The methods of each path that FastAPI answers."""
    found: dict[str, set[str]] = {}
    for route in routes:
        path = getattr(route, "path_format", getattr(route, "path", ""))
        found.setdefault(path, set()).update(getattr(route, "methods", None) or ())
    return found


def _complete(path: str, item: Part, methods: Iterable[str], *, is_admin: bool) -> Part:
    """A path with HEAD and OPTIONS, and with the answers and headers that all paths have."""
    operations: Part = {method: deepcopy(item[method]) for method in ("get", "post") if method in item}
    for operation in operations.values():
        operation["responses"] = _complete_answers(operation["responses"], is_admin=is_admin)
        if is_admin:
            operation["security"] = [{"admin": []}]
    if "HEAD" in methods:
        get = operations["get"]
        operations["head"] = {**get, LIKE: "get", "responses": without_content(get["responses"])}
    operations["options"] = _options(item, is_admin=is_admin)
    for method, operation in operations.items():
        operation["operationId"] = _operation_id(method, path)
        add_headers(operation["responses"], shared=not is_admin and (path != STATUS_PATH or method == "options"))
    return ({"parameters": item["parameters"]} if "parameters" in item else {}) | operations


def _complete_answers(responses: Part, *, is_admin: bool) -> Part:
    """The answers of an operation. In place of FastAPI's 422, an invalid parameter is a 400."""
    complete = {status: described for status, described in responses.items() if status != "422"}
    if "422" in responses:
        complete.setdefault("400", answer(MEANINGS[400], PROBLEM))
    if is_admin:
        complete = {**answers(_ADMIN_ERRORS, PROBLEM), **complete}
    add_server_answers(complete)
    for described in complete.values():
        empty = [kind for kind, schema in described.get("content", {}).items() if schema == {}]
        described.get("content", {}).update(content(*empty))
    return complete


def _options(item: Part, *, is_admin: bool) -> Part:
    """OPTIONS, which limits of clients concern as every method."""
    operation = item.get("get") or item["post"]
    path_parameters = [one for one in operation.get("parameters", ()) if one["in"] == "path"]
    errors = answers(_ADMIN_ERRORS, PROBLEM) if is_admin else answers([403, 429, 508], HTML, PROBLEM)
    responses = {**answers([204]), **errors}
    add_server_answers(responses)
    return {
        "tags": operation.get("tags", []),
        "summary": "The methods of this path",
        "parameters": [*path_parameters, *PREFLIGHT_PARAMETERS],
        LIKE: "get" if "get" in item else "post",
        "responses": responses,
    }


def _operation_id(method: str, path: str) -> str:
    """A name that follows from method and path alone. Generated clients name their functions by it."""
    words = re.findall(r"[A-Za-z0-9]+", re.sub(r"/\{[^}]*\}", "", path) or re.sub(r"[{}]", "", path))
    return "_".join([method, *(words or ["home"])])


def _components(components: Part, *, has_admin: bool) -> Part:
    _, schemas = models_json_schema([(model, "serialization") for model in _MODELS], ref_template=_SCHEMA)
    known = {
        name: schema
        for name, schema in (components.get("schemas", {}) | schemas["$defs"]).items()
        if name not in ("HTTPValidationError", "ValidationError")
    }
    found: Part = {
        "schemas": dict(sorted(known.items())),
        "headers": {name: header_component(name) for name in HEADERS},
    }
    if has_admin:
        found["securitySchemes"] = {"admin": {"type": "http", "scheme": "bearer"}}
    return found
