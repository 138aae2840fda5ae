"""The pages and files in the OpenAPI document: paths that FastAPI answers without a model."""

from __future__ import annotations

from typing import Any, Final

from app.features.library.preferences import FIELD
from app.features.library.preferences import PATH as PREFERENCES_PATH
from app.features.openapi.answers import Part, answer, answers
from app.features.openapi.parameters import EXAMPLE, describe_path
from app.web.media_types import HTML, JSON, PROBLEM, TEXT
from app.web.route import PROBE_PATH, STATIC_PATH

STATIC_TEMPLATE: Final = STATIC_PATH.decode() + "{file}"
PROBE_TEMPLATE: Final = PROBE_PATH.decode() + "{rest}"
_TEXT: Final[Part] = {"type": "string"}
_BYTES: Final[Part] = {"schema": {"type": "string", "contentMediaType": "application/octet-stream"}}
#: The media types of the files that the pages use, and of an institution's logo.
_FILES: Final = ("text/css", "image/svg+xml", "image/png", "image/jpeg", "image/webp", "image/x-icon")
_METRICS: Final = (TEXT, "application/openmetrics-text")


def _page(summary: str, text: str, path: str, **parts: Any) -> Part:
    return {
        "tags": ["pages"],
        "summary": summary,
        "description": text,
        EXAMPLE: path,
        "responses": {"200": answer("The page.", HTML)},
        **parts,
    }


def _files(text: str) -> Part:
    return {"description": text, "content": dict.fromkeys(_FILES, _BYTES)}


def page_paths() -> Part:
    """The paths, each with its operations GET and POST."""
    return {
        "/docs": {"get": _page("The documentation of this API", "This API as a page.", "/docs")},
        "/privacy": {"get": _page("What this instance stores", "The settings decide what it says.", "/privacy")},
        PREFERENCES_PATH: _preferences(),
        "/openapi.json": {"get": _openapi()},
        "/metrics": {"get": _metrics()},
        "/robots.txt": {"get": _robots()},
        "/favicon.ico": {
            "get": {
                "tags": ["pages"],
                "summary": "The icon of the site",
                "description": "The icon that browsers show.",
                EXAMPLE: "/favicon.ico",
                "responses": {"200": _files("The icon."), "404": answer("There is no such file.", HTML)},
            }
        },
        STATIC_TEMPLATE: {
            "parameters": [describe_path("file", "The name of the file.", {**_TEXT, "examples": ["style.css"]})],
            "get": {
                "tags": ["pages"],
                "summary": "A file of the pages",
                "description": "The stylesheet and the pictures of the pages.",
                EXAMPLE: "/static/style.css",
                "responses": {"200": _files("The file."), "404": answer("There is no such file.", HTML)},
            },
        },
        PROBE_TEMPLATE: {"parameters": [describe_path("rest", "Any path.", _TEXT)], "get": _probe()},
    }


def _preferences() -> Part:
    choice = {"type": "string", "description": "A service of the library, `none`, or nothing to follow the rules."}
    schema = {"type": "object", "properties": {FIELD: choice}, "required": [FIELD]}
    return {
        "get": _page("The reader's choice", "A reader can choose among the services of the library.", PREFERENCES_PATH),
        "post": {
            "tags": ["pages"],
            "summary": "Save the reader's choice",
            "description": "Keeps the choice in a cookie, and leads back to the page.",
            "requestBody": {"required": True, "content": {"application/x-www-form-urlencoded": {"schema": schema}}},
            "responses": {
                "303": {"description": "Leads back to the page."},
                **answers([400, 413], HTML, PROBLEM),
                "403": answer("A page of another site sent the form.", HTML, PROBLEM),
            },
        },
    }


def _openapi() -> Part:
    return {
        "tags": ["pages"],
        "summary": "This document",
        "description": "The API as OpenAPI 3.1.",
        EXAMPLE: "/openapi.json",
        "responses": {"200": answer("The document.", JSON, json={"type": "object"})},
    }


def _metrics() -> Part:
    return {
        "tags": ["operation"],
        "summary": "Metrics for Prometheus",
        "description": "The metrics of all workers, in the text format of Prometheus or, by `Accept`, as OpenMetrics.",
        EXAMPLE: "/metrics",
        "responses": {
            "200": {"description": "The metrics.", "content": {kind: {"schema": _TEXT} for kind in _METRICS}}
        },
    }


def _robots() -> Part:
    return {
        "tags": ["pages"],
        "summary": "What crawlers may fetch",
        "description": "Crawlers may fetch the home page alone (RFC 9309).",
        EXAMPLE: "/robots.txt",
        "responses": {"200": answer("The rules.", TEXT)},
    }


def _probe() -> Part:
    echo = {"json": {"type": "object"}}
    echoes = {200: "What the request looked like here.", 302: "A redirect, for the probe of redirects."}
    failures = {404: "The token is not valid, or the status that the probe wanted."}
    wanted = {502: "The status that the probe wanted.", 503: "The status that the probe wanted."}
    return {
        "tags": ["operation"],
        "summary": "A probe of a front proxy",
        "description": "`doi-proxy doctor` sends it. It is answered for a token that only the operator can sign.",
        "responses": {
            **{str(status): answer(text, JSON, **echo) for status, text in (echoes | wanted).items()},
            **{str(status): answer(text, HTML, JSON, **echo) for status, text in failures.items()},
        },
    }
