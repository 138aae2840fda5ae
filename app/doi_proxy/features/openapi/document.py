"""The OpenAPI document: what FastAPI knows about its routes, completed and joined with the paths of `api.toml`."""

from __future__ import annotations

import json
import re
from asyncio import Lock, to_thread
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute

from doi_proxy.endpoints import SuggestionModel, language_of, own_page
from doi_proxy.system.files import read_package_file
from doi_proxy.system.toml_text import parse_toml
from doi_proxy.web.freshness import OWN_PAGE
from doi_proxy.web.media_types import JSON, NDJSON, TEXT
from doi_proxy.web.pages import PageLink
from doi_proxy.web.problem import all_titles
from doi_proxy.web.redirect import Face


class HandleValueModel(BaseModel):
    """One value of a record. Other members pass through as the upstream sent them."""

    index: int = Field(examples=[1])
    type: str = Field(examples=["URL"])
    data: dict[str, Any] | str = Field(examples=[{"format": "string", "value": "http://www.doi.org/hb.html"}])
    ttl: int | str | None = Field(None, description="Seconds, or an ISO 8601 time.", examples=[86400])
    timestamp: str | None = Field(None, examples=["2004-01-21T14:14:17Z"])


class RegistrySourceModel(BaseModel):
    """The file of a registration agency that a record is from."""

    agency: str = Field(description="Empty if the file does not name it.", examples=["Crossref"])
    date: str = Field(description="When the file says that it was true.", examples=["2026-03-01T00:00:00Z"])


class HandleAnswerModel(BaseModel):
    """An answer of the handle API."""

    responseCode: int = Field(
        description="1 found, 100 not found, 200 no such values, 2 could not verify, 4 and 102 bad request.",
        examples=[1],
    )
    handle: str | None = Field(None, description="The name as the client spelled it.", examples=["10.1000/182"])
    values: list[HandleValueModel] | None = None
    message: str | None = Field(None, description="Why the request failed.")
    registry: RegistrySourceModel | None = Field(
        None,
        description="Present if the record is from a registration agency's file, and no upstream has confirmed it.",
    )


class AgencyModel(BaseModel):
    """The registration agency of a name: `RA`, or `status` if the agency is not known."""

    DOI: str = Field(description="The name as the client spelled it.", examples=["10.1000/182"])
    RA: str | None = Field(None, examples=["DataCite"])
    status: str | None = Field(None, examples=["DOI does not exist"])


class ProblemModel(BaseModel):
    """A problem as the description of the API has it (RFC 9457)."""

    type: str = Field(description="A URL of the page `/docs`; its fragment is stable.", examples=["/docs#not-found"])
    title: str = Field(description="What the type means.", examples=["The name is not registered"])
    status: int = Field(description="The status of the answer.", examples=[404])
    detail: str = Field(description="What is wrong with this request.")
    doi: str | None = Field(None, description="The name as the client spelled it, if it could be read.")
    suggestions: list[SuggestionModel] | None = Field(None, description="Names that the client may have meant.")
    retry_after: int | None = Field(None, description="Seconds to wait, as in Retry-After.")


#: A part of an OpenAPI document.
Part = dict[str, Any]

#: The member of an operation, until it is complete, that names groups of answers of `api.toml`.
_GROUPS: Final = "answers"
#: The schema of text that is not described any further.
_TEXT: Final = {"type": "string"}
_MODELS: Final[tuple[type[BaseModel], ...]] = (HandleAnswerModel, AgencyModel, ProblemModel)


def write_document(
    routes: Sequence[BaseRoute],
    admin_routes: Sequence[BaseRoute],
    *,
    version: str,
    server_url: str,
) -> Part:
    """The document about the routes of FastAPI, those of the admin API, and the paths of names."""
    data, examples = (read_package_file(__package__, name).decode() for name in ("api.toml", "examples.json"))
    api = _Api(parse_toml(data), json.loads(examples))
    every = [*routes, *admin_routes]
    document = get_openapi(
        **api.data["info"], version=version, routes=every, servers=[{"url": server_url}], tags=api.data["tags"]
    )
    paths, guarded = _list_paths(every), _list_paths(admin_routes) - _list_paths(routes)
    undescribed = {path: item for path, item in api.data["routes"].items() if path in paths}
    described = api.read_paths(api.data["names"] | undescribed) | document["paths"]
    document["paths"] = {path: api.complete(path, item, is_admin=path in guarded) for path, item in described.items()}
    _, schemas = models_json_schema(
        [(model, "serialization") for model in _MODELS], ref_template="#/components/schemas/{model}"
    )
    known = document.get("components", {}).get("schemas", {}) | schemas["$defs"]
    # Models of FastAPI for the status 422, which no route answers.
    unused = ("HTTPValidationError", "ValidationError")
    document["components"] = {
        "schemas": {name: schema for name, schema in sorted(known.items()) if name not in unused},
        "headers": api.headers,
        "parameters": api.parameters,
        "responses": api.responses,
    }
    if admin_routes:
        document["components"]["securitySchemes"] = {"admin": {"type": "http", "scheme": "bearer"}}
    return document


def replace_references(document: Part) -> Part:
    """The same document with its parameters and answers in place."""

    def replace(part: Any) -> Any:
        if isinstance(part, list):
            return [replace(item) for item in part]
        if not isinstance(part, dict):
            return part
        _, _, kind, name = part.get("$ref", "///").split("/")
        if kind in ("parameters", "responses"):
            return document["components"][kind][name]
        return {key: replace(item) for key, item in part.items()}

    return {**document, "paths": replace(document["paths"])}


def _list_paths(routes: Iterable[BaseRoute]) -> set[str]:
    """The paths that FastAPI answers."""
    return {getattr(route, "path_format", getattr(route, "path", "")) for route in routes}


def _describe(text: str | Part) -> Part:
    """A header or a parameter. A text alone describes a string."""
    if isinstance(text, str):
        return {"description": text, "schema": _TEXT}
    return {"description": text["text"], "schema": text.get("schema", _TEXT)}


def _describe_parameter(kind: str, name: str, text: str | Part) -> Part:
    sent = name if isinstance(text, str) else text.get("name", name)
    parameter = {"name": sent, "in": "query" if kind == "flag" else kind, "required": kind == "path", **_describe(text)}
    if kind == "flag":
        parameter |= {"schema": {"type": "string", "examples": [""]}, "allowEmptyValue": True}
    return parameter


def _merge(*groups: Part) -> Part:
    """The answers of all groups. An answer has the media types of all, and the text and the schemas of the last."""
    merged: Part = {}
    for status, answer in ((status, answer) for group in groups for status, answer in group.items()):
        content = answer.get("content", {})
        others = merged.get(status, {}).get("content", {})
        merged[status] = answer | ({"content": content | others | content} if content | others else {})
    return merged


class _Api:
    """The data of `api.toml` and `examples.json`, and the components that operations use."""

    def __init__(self, data: Part, examples: Part) -> None:
        """`examples` are bodies of requests and answers, by the ID of an operation of FastAPI."""
        self.data = data
        self._examples = examples
        self.headers = {name: _describe(text) for name, text in data["headers"].items()}
        #: The statuses of the answers that have a header.
        self._statuses: dict[str, Sequence[int]] = {name: text["of"] for name, text in data["headers"].items()}
        self.parameters: Part = {}
        self.responses: Part = {}
        self._parameters = {
            name: _describe_parameter(kind, name, text)
            for kind, texts in data["parameters"].items()
            for name, text in texts.items()
        }
        self._groups = {name: dict(self._read_group(group)) for name, group in data["answers"].items()}

    def read_paths(self, paths: Part) -> Part:
        """These paths in the form of OpenAPI."""
        return {
            path: {method: self._read_operation(operation) for method, operation in item.items()}
            for path, item in paths.items()
        }

    def _read_operation(self, operation: Part) -> Part:
        """An operation in the form of OpenAPI, still with the names of its groups of answers."""
        read = {_GROUPS: [], **operation}
        read["responses"] = dict(self._read_group(operation.get("responses", {})))
        if "parameters" in operation:
            read["parameters"] = self._refer_to_parameters(operation["parameters"])
        return read

    def _refer_to_parameters(self, entries: Iterable[str]) -> list[Part]:
        """References to parameters. An entry is a name, or a list of names."""
        names = [name for entry in entries for name in self.data["lists"].get(entry, [entry])]
        self.parameters |= {name: self._parameters[name] for name in names}
        return [{"$ref": f"#/components/parameters/{name}"} for name in names]

    def _read_group(self, group: Part) -> Iterator[tuple[str, Part]]:
        """The answers of a group by their statuses."""
        answers: Part = {status: answer for status, answer in group.items() if status.isdigit()}
        for status, answer in (answers | {str(status): {} for status in group.get("others", ())}).items():
            # An answer with this status has no body.
            types = () if status == "304" else answer.get("types", group.get("types", ()))
            schema = answer.get("json", group.get("json"))
            example = {key: answer[key] for key in ("example",) if key in answer}
            described = {"description": answer.get("text") or self.data["meanings"][status]}
            content = {kind: {"schema": schema if kind == JSON else self._find_schema(kind)} for kind in types}
            for kind in content.keys() & {JSON, TEXT}:
                content[kind] |= example
            yield status, described | ({"content": content} if content else {})

    def _find_schema(self, media_type: str) -> Part:
        schema: Part = self.data["types"].get(media_type, _TEXT)
        return schema

    def complete(self, path: str, item: Part, *, is_admin: bool) -> Part:
        """A path with the answers that FastAPI does not know."""
        # The methods that a program calls. HEAD has what GET has, and OPTIONS is for browsers.
        operations: Part = {method: dict(item[method]) for method in ("get", "post") if method in item}
        for method, operation in operations.items():
            if is_admin:
                operation |= {_GROUPS: ["admin"], "security": [{"admin": []}]}
            # A name that follows from method and path alone. Generated clients name their functions by it.
            words = re.findall(r"[A-Za-z0-9]+", re.sub(r"/\{[^}]*\}", "", path) or re.sub(r"[{}]", "", path))
            operation["operationId"] = "_".join([method, *words, *(["list"] if path.endswith("/") else [])])
            example = self._examples.get(operation["operationId"], {})
            for content in operation.get("requestBody", {}).get("content", {}).values():
                content.setdefault("example", example.get("body"))
            operation["responses"] = self._complete_answers(
                operation.pop(_GROUPS, []), operation["responses"], example.get("answer")
            )
        return operations

    def _complete_answers(self, groups: Sequence[str], own: Part, example: Any) -> Part:
        """The answers of these groups and of the operation. Those of groups alone are components."""
        named = [self._groups[name] for name in (*groups, *(["invalid"] if "422" in own else []))]
        answers = _merge(
            *named, {status: self._fill(own_answer, example) for status, own_answer in own.items() if status != "422"}
        )
        complete: Part = {}
        for status, answer in sorted(answers.items()):
            known = [name for name, statuses in self._statuses.items() if int(status) in statuses]
            headers = {name: {"$ref": f"#/components/headers/{name}"} for name in known} | answer.get("headers", {})
            described = answer | ({"headers": headers} if headers else {})
            # Some generators of clients do not look behind a reference for the media type of an answer.
            if status in own or (status == "200" and JSON in answer.get("content", {})):
                complete[status] = described
            else:
                name = "-".join([*groups, status])
                self.responses[name] = described
                complete[status] = {"$ref": f"#/components/responses/{name}"}
        return complete

    def _fill(self, answer: Part, example: Any) -> Part:
        """An answer of FastAPI with the example of its JSON. A route gives some media types without a schema."""
        content = {}
        for kind, part in answer.get("content", {}).items():
            has_schema = part.get("schema", _TEXT) != _TEXT
            content[kind] = part if has_schema else part | {"schema": self._find_schema(kind)}
            if has_schema and example is not None and kind in (JSON, NDJSON):
                content[kind] |= {"example": example if kind == JSON else example[0]}
        return answer | ({"content": content} if content else {})


Made = TypeVar("Made")


def add_openapi(app: FastAPI, face: Face, admin_routes: Sequence[BaseRoute], *, server_url: str) -> None:
    """Describe all paths, those of `admin_routes` too."""
    face.pages.links.append(PageLink("header", "/docs", "site.documentation"))

    # The routes are complete at the first request.
    @cache
    def describe() -> dict[str, Any]:
        return write_document(app.routes, admin_routes, version=app.version, server_url=server_url)

    address = "BASE" if server_url == "/" else server_url.rstrip("/")
    app.openapi = describe  # type: ignore[method-assign]
    encode = cache(lambda: JSONResponse(describe()).body)
    describe_in_place = cache(lambda: replace_references(describe()))
    # The document takes 0.1 s to make and the page 30 ms, which is too long for the event loop.
    making = Lock()

    async def make(part: Callable[[], Made]) -> Made:
        async with making:
            return await to_thread(part)

    @app.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
    async def openapi() -> Response:
        return Response(await make(encode), media_type=JSON)

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs(request: Request) -> Response:
        language = language_of(request, face.pages)

        def render() -> bytes:
            facts: dict[str, Any] = {"schema": describe_in_place(), "problems": all_titles(), "address": address}
            return face.pages.render("docs", face.link, language, "site.documentation", **facts)

        return own_page(await make(render), OWN_PAGE)
