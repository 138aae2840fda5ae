"""The OpenAPI document: what FastAPI knows about its routes, completed and joined with the paths of `api.toml`."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Any, Final

from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute

from doi_proxy.features.openapi.models import AgencyModel, HandleAnswerModel, ProblemModel
from doi_proxy.web.media_types import JSON, NDJSON

#: A part of an OpenAPI document.
Part = dict[str, Any]

#: The member of an operation that names the method of the same path that answers in the same way.
_LIKE: Final = "x-like"
#: The member of an operation, until it is complete, that names groups of answers of `api.toml`.
_GROUPS: Final = "answers"
#: The schema of text that is not described any further.
_TEXT: Final = {"type": "string"}
_MODELS: Final[tuple[type[BaseModel], ...]] = (HandleAnswerModel, AgencyModel, ProblemModel)
#: Models of FastAPI for the status 422, which no route answers.
_UNUSED_MODELS: Final = ("HTTPValidationError", "ValidationError")
_METHODS_OF_NAMES: Final = frozenset({"GET", "HEAD", "POST"})
#: Answers with these statuses have no body.
_NO_BODY: Final = ("204", "304")


def write_document(
    routes: Sequence[BaseRoute],
    admin_routes: Sequence[BaseRoute],
    *,
    version: str,
    server_url: str,
) -> Part:
    """The document about the routes of FastAPI, those of the admin API, and the paths of names."""
    data, examples = (files(__package__).joinpath(name).read_text("utf-8") for name in ("api.toml", "examples.json"))
    api = _Api(tomllib.loads(data), json.loads(examples))
    every = [*routes, *admin_routes]
    document = get_openapi(**api.data["info"], version=version, routes=every, servers=[{"url": server_url}])
    methods, guarded = _find_methods(every), _find_methods(admin_routes).keys() - _find_methods(routes).keys()
    pages = {path: item for path, item in api.data["pages"].items() if path in methods}
    document["paths"] = {
        path: api.complete(path, item, methods.get(path, _METHODS_OF_NAMES), is_admin=path in guarded)
        for path, item in (api.read_paths(api.data["names"]) | document["paths"] | api.read_paths(pages)).items()
    }
    _, schemas = models_json_schema(
        [(model, "serialization") for model in _MODELS], ref_template="#/components/schemas/{model}"
    )
    known = document.get("components", {}).get("schemas", {}) | schemas["$defs"]
    document["components"] = {
        "schemas": {name: schema for name, schema in sorted(known.items()) if name not in _UNUSED_MODELS},
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


def _find_methods(routes: Iterable[BaseRoute]) -> dict[str, set[str]]:
    """The methods of each path that FastAPI answers."""
    found: dict[str, set[str]] = {}
    for route in routes:
        path = getattr(route, "path_format", getattr(route, "path", ""))
        found.setdefault(path, set()).update(getattr(route, "methods", None) or ())
    return found


def _write_operation_id(method: str, path: str) -> str:
    """A name that follows from method and path alone. Generated clients name their functions by it."""
    words = re.findall(r"[A-Za-z0-9]+", re.sub(r"/\{[^}]*\}", "", path) or re.sub(r"[{}]", "", path))
    return "_".join([method, *(words or ["home"]), *(["list"] if words and path.endswith("/") else [])])


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
        #: The statuses of the answers that have a header. Empty for all.
        self._statuses = {
            name: () if isinstance(text, str) else text.get("of", ()) for name, text in data["headers"].items()
        }
        self.parameters: Part = {}
        self.responses: Part = {}
        self._parameters = {
            name: _describe_parameter(kind, name, text)
            for kind, texts in data["parameters"].items()
            for name, text in texts.items()
        }
        self._groups = {name: dict(self._read_group(group)) for name, group in data["answers"].items()}

    def read_paths(self, paths: Part) -> Part:
        """These paths in the form of OpenAPI, each with its operations GET and POST."""
        found: Part = {}
        for path, item in paths.items():
            like = paths.get(item.get("like"), {})
            read = {method: like.get(method, {}) | item.get(method, {}) for method in ("get", "post")}
            if _LIKE in read["post"]:
                read["post"] = read["get"] | read["post"]
            found[path] = {method: self._read_operation(operation) for method, operation in read.items() if operation}
        return found

    def _read_operation(self, operation: Part) -> Part:
        """An operation in the form of OpenAPI, still with the names of its groups of answers."""
        read = {"tags": ["pages"], _GROUPS: [], **operation}
        read["responses"] = dict(self._read_group(operation.get("responses", {})))
        if "parameters" in operation:
            read["parameters"] = self._refer_to_parameters(operation["parameters"])
        if "body" in operation:
            body = self.data["bodies"][read.pop("body")]
            content = {kind: {"schema": body["schema"], "example": body["example"]} for kind in body["types"]}
            text = {key: body[key] for key in ("description", "required") if key in body}
            read["requestBody"] = {**text, "content": content}
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
            types = () if status in _NO_BODY else answer.get("types", group.get("types", ()))
            schema = answer.get("json", group.get("json"))
            example = {key: answer[key] for key in ("example",) if key in answer}
            described = {"description": answer.get("text") or self.data["meanings"][status]}
            content = {
                kind: {"schema": schema} | example if kind == JSON else {"schema": self._find_schema(kind)}
                for kind in types
            }
            yield status, described | ({"content": content} if content else {})

    def _find_schema(self, media_type: str) -> Part:
        schema: Part = self.data["types"].get(media_type, _TEXT)
        return schema

    def complete(self, path: str, item: Part, methods: Collection[str], *, is_admin: bool) -> Part:
        """A path with HEAD and OPTIONS, and with the answers and headers that all paths have."""
        operations: Part = {method: dict(item[method]) for method in ("get", "post") if method in item}
        if is_admin:
            for operation in operations.values():
                operation |= {_GROUPS: ["admin"], "security": [{"admin": []}]}
        if "HEAD" in methods:
            operations["head"] = {**operations["get"], _LIKE: "get"}
        first = next(iter(operations))
        operations["options"] = self._describe_options(operations[first], first, is_admin=is_admin)
        has_cors = not is_admin and path not in self.data["paths-without-cors"]
        for method, operation in operations.items():
            operation["operationId"] = _write_operation_id(method, path)
            example = self._examples.get(operation["operationId"], {})
            for content in operation.get("requestBody", {}).get("content", {}).values():
                content.setdefault("example", example.get("body"))
            operation["responses"] = self._complete_answers(
                operation.pop(_GROUPS, []),
                operation["responses"],
                example.get("answer"),
                has_cors=has_cors or (method == "options" and not is_admin),
                has_body=method != "head",
            )
        return operations

    def _describe_options(self, like: Part, method: str, *, is_admin: bool) -> Part:
        """OPTIONS, which limits of clients concern as every method."""
        parameters = like.get("parameters", [])
        found = (
            self.parameters.get(reference.get("$ref", "").rpartition("/")[2], reference) for reference in parameters
        )
        in_path = [
            reference for reference, parameter in zip(parameters, found, strict=True) if parameter["in"] == "path"
        ]
        return {
            "tags": like.get("tags", []),
            "summary": "The methods of this path",
            "parameters": [*in_path, *self._refer_to_parameters(["preflight"])],
            _LIKE: method,
            _GROUPS: ["admin-options" if is_admin else "options"],
            "responses": {},
        }

    def _complete_answers(
        self, groups: Sequence[str], own: Part, example: Any, *, has_cors: bool, has_body: bool
    ) -> Part:
        """The answers of these groups and of the operation. Those of groups alone are components."""
        invalid = ["invalid"] if "422" in own else []
        named = [self._groups[name] for name in ("server", *groups, *invalid)]
        answers = _merge(
            *named, {status: self._fill(own_answer, example) for status, own_answer in own.items() if status != "422"}
        )
        if "500" not in answers:
            answers |= self._groups["fault"]
        complete: Part = {}
        for status, answer in answers.items():
            kept = {key: part for key, part in answer.items() if key != "content" or has_body}
            complete[status] = kept | {
                "headers": self._find_headers(status, has_cors=has_cors) | kept.get("headers", {})
            }
        if own:
            return complete
        # Some generators of clients do not look behind a reference for the media type of an answer.
        names = {
            status: "-".join(groups) + f".{status}" + ("" if has_body else ".head")
            for status, answer in complete.items()
            if not (status == "200" and JSON in answer.get("content", {}))
        }
        self.responses |= {name: complete[status] for status, name in names.items()}
        return complete | {status: {"$ref": f"#/components/responses/{name}"} for status, name in names.items()}

    def _fill(self, answer: Part, example: Any) -> Part:
        """An answer of FastAPI with the example of its JSON. A route gives some media types without a schema."""
        content = {}
        for kind, part in answer.get("content", {}).items():
            has_schema = part.get("schema", _TEXT) != _TEXT
            content[kind] = part if has_schema else part | {"schema": self._find_schema(kind)}
            if has_schema and example is not None and kind in (JSON, NDJSON):
                content[kind] |= {"example": example if kind == JSON else example[0]}
        return answer | ({"content": content} if content else {})

    def _find_headers(self, status: str, *, has_cors: bool) -> Part:
        names = [name for name, statuses in self._statuses.items() if int(status) in statuses or not statuses]
        headers: Part = {
            name: {"$ref": f"#/components/headers/{name}"}
            for name in names
            if has_cors or not name.startswith("Access-Control-")
        }
        if status.startswith("3") and "Location" in headers:
            headers["Location"] = {**self.headers["Location"], "required": True}
        return headers
