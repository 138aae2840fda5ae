"""The paths of names in the OpenAPI document. The application answers them itself, without FastAPI's routing."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, Field

from app.doi.name import MAX_NAME_BYTES
from app.features.openapi.answers import Part, answer, answers
from app.features.openapi.parameters import COMMON_PARAMETERS, EXAMPLE, LIKE, describe_path, describe_query, flag
from app.resolver.metadata_format import MEDIA_TYPES
from app.web.api import MAX_CALLBACK
from app.web.media_types import HTML, JAVASCRIPT, JSON, PROBLEM, XML
from app.web.request_path import MAX_INDEX, MAX_LOCATTS, MAX_PARAMETERS
from app.web.which_ra import MAX_NAMES

_NAME: Final[Part] = {"type": "string", "minLength": 1, "maxLength": MAX_NAME_BYTES, "examples": ["10.1000/182"]}
_HANDLE: Final[Part] = {"$ref": "#/components/schemas/HandleAnswerModel"}
_AGENCIES: Final[Part] = {"type": "array", "items": {"$ref": "#/components/schemas/AgencyModel"}}
_FAILURES: Final = (502, 503, 504)


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


_TYPE: Final = describe_query(
    "type",
    "Only values of this type, in either letter case; `URL.` also matches its subtypes. Repeatable.",
    {"type": "array", "items": {"type": "string"}, "maxItems": MAX_PARAMETERS},
)
_INDEX: Final = describe_query(
    "index",
    "Only the value of this index; a union with `type`. Repeatable.",
    {
        "type": "array",
        "items": {"type": "integer", "minimum": 0, "maximum": MAX_INDEX},
        "maxItems": MAX_PARAMETERS,
    },
)
_AUTH: Final = flag("auth", "Bypass the cache; the upstream queries a primary server.")
_CERT: Final = flag("cert", "Bypass the cache; the upstream returns a certified answer.")
_TEXT: Final[Part] = {"type": "string"}

_OF_RESOLUTION: Final = [
    _TYPE,
    _INDEX,
    flag("noredirect", "Show the record. The parameter needs no value."),
    describe_query(
        "action",
        "`redirect` (the default), `showvalues` (as `noredirect`), `showurls` (the locations as XML), `api` (the "
        "record as JSON) or `metadata` (prefer locations for metadata). Any other value is `redirect`.",
        {"type": "string", "examples": ["showurls"]},
    ),
    describe_query(
        "format",
        f"Redirect to the agency's metadata in this format: {', '.join(MEDIA_TYPES)}.",
        {"type": "string", "enum": list(MEDIA_TYPES)},
    ),
    _AUTH,
    _CERT,
    flag("ignore_aliases", "Treat an alias as any other value."),
    flag("redirectionHeaders", "Send the headers of the redirect with status 200."),
    describe_query("urlappend", "Appended to the target's URL. It cannot change the host.", _TEXT),
    describe_query(
        "locatt",
        "Prefer the locations with this attribute, written `key:value` or `key`. Repeatable.",
        {"type": "array", "items": _TEXT, "maxItems": MAX_LOCATTS},
    ),
    describe_query("country", "The country of the client, two letters.", {"type": "string", "examples": ["de"]}),
    flag("nols", "Lead past the copy of the library."),
    flag("nosfx", "The same as `nols`."),
    *COMMON_PARAMETERS,
]
_OF_HANDLES: Final = [
    _TYPE,
    _INDEX,
    _AUTH,
    _CERT,
    flag("lenient", "Read the name as a resolution URL does: without label, URL, blanks."),
    flag("pretty", "Indent the JSON (empty, `yes` or `true`)."),
    describe_query(
        "callback",
        "JSONP: wrap the JSON in a call of this function. The name is cut at this length.",
        {"type": "string", "maxLength": MAX_CALLBACK},
    ),
    *COMMON_PARAMETERS,
]
_OPENURL: Final = [
    describe_query("id", "A DOI as `doi:10.1000/182`.", {"type": "string", "examples": ["doi:10.1000/182"]}),
    describe_query("rft_id", "A DOI as `info:doi/10.1000/182`.", _TEXT),
    *_OF_RESOLUTION,
]
_PAGE_ERRORS: Final = (400, 403, 414, 429, 500, 508)
_REDIRECT_TEXTS: Final = {
    302: "Redirects to the target of the name.",
    303: "Redirects to the target; the record chose this status.",
    307: "Redirects to the target; the record chose this status.",
    308: "Redirects to the target; the record chose this status.",
}


def _resolution_answers() -> Part:
    record = {"json": _HANDLE}
    return {
        "200": answer(
            "The record as a page, because it has no target or the request has `noredirect`; as JSON for `action=api`; "
            "the locations as XML for `action=showurls`.",
            HTML,
            JSON,
            JAVASCRIPT,
            XML,
            **record,
        ),
        "301": answer(
            "The name is an alias. Redirects to this resolver's address of the name it stands for. Or the record chose "
            "this status.",
            HTML,
        ),
        **{str(status): answer(text, HTML) for status, text in _REDIRECT_TEXTS.items()},
        **answers([304]),
        **answers(_PAGE_ERRORS, HTML, PROBLEM),
        "404": answer("The upstream says that the name is not registered.", HTML, PROBLEM, JSON, JAVASCRIPT, **record),
        **answers([410], HTML, PROBLEM),
        **answers(_FAILURES, HTML, PROBLEM),
    }


def _handle_answers() -> Part:
    json = {"json": _HANDLE}
    return {
        "200": answer("The record, or responseCode 200 if it has no such values.", JSON, JAVASCRIPT, **json),
        **answers([304]),
        "400": answer("The index or the name is not valid.", JSON, JAVASCRIPT, **json),
        "404": answer("responseCode 100: not registered.", JSON, JAVASCRIPT, **json),
        **answers([403, 414, 429, 508, *_FAILURES], JSON, JAVASCRIPT, **json),
        **answers([500], HTML, PROBLEM),
    }


def _agency_answers() -> Part:
    error = {"json": {"type": "object", "properties": {"message": _TEXT}}}
    return {
        "200": answer("A row for each name.", JSON, HTML, json=_AGENCIES),
        "400": answer("The request has more names than the limit.", JSON, HTML, PROBLEM, **error),
        **answers([403, 414, 429, 500, 508], HTML, PROBLEM),
    }


def _form(*names: str, texts: dict[str, str]) -> Part:
    """A body with parameters, which are read after those of the query."""
    members = {name: {"type": "string", "description": texts[name]} for name in names}
    schema = {"type": "object", "properties": members}
    return {
        "description": "The parameters of the query can be in the body too.",
        "required": False,
        "content": {
            "application/x-www-form-urlencoded": {"schema": schema},
            JSON: {"schema": schema},
        },
    }


_BODY: Final = _form("hdl", texts={"hdl": "A name in any form, resolved instead of the path."})


def _operations(operation: Part) -> Part:
    """GET, and POST that answers as GET does or, for `hdl` in its body, as the path of that name does."""
    responses = answers([413], HTML, PROBLEM, JSON, json=_HANDLE)
    for status, other in {**_resolution_answers(), **operation["responses"]}.items():
        mine = operation["responses"].get(status, other)
        types = {**mine.get("content", {}), **_resolution_answers().get(status, {}).get("content", {})}
        responses[status] = {**other, "content": {**types, **mine.get("content", {})}}
    post = {**operation, "requestBody": _BODY, "responses": responses, LIKE: "get"}
    return {"get": operation, "post": post}


def name_paths() -> Part:
    """The paths, each with its operations GET and POST."""
    return {
        "/{doi}": {"parameters": [describe_path("doi", "The name; a slash may be `/` or `%2F`.", _NAME)], **_resolve()},
        "/": _home(),
        "/openurl": _operations(
            {
                "tags": ["resolution"],
                "summary": "Resolve the DOI in an OpenURL",
                "description": "Resolve the DOI that an OpenURL names (ANSI/NISO Z39.88).",
                EXAMPLE: "/openurl?id=doi:10.1000/182",
                "parameters": _OPENURL,
                "responses": _resolution_answers(),
            }
        ),
        "/api/handles/{handle}": {
            "parameters": [describe_path("handle", "The name; a slash may be `/` or `%2F`.", _NAME)],
            **_read_record(),
        },
        "/ra/{names}": _read_agencies("/ra", "Which agency registered it?"),
        "/doiRA/{names}": _read_agencies("/doiRA", "Which agency registered it? (doi.org's address)"),
    }


def _resolve() -> Part:
    return _operations(
        {
            "tags": ["resolution"],
            "summary": "Resolve a DOI name",
            "description": "Redirect to the target of a DOI name, or show its record.\n\nThe name can also be written "
            "`doi:10.1000/182`, `urn:doi:10.1000:182`, `info:doi/10.1000/182` or as a URL. `Accept` chooses among the "
            "formats of the agency (content negotiation).",
            EXAMPLE: "/10.1000/182",
            "parameters": _OF_RESOLUTION,
            "responses": _resolution_answers(),
        }
    )


def _home() -> Part:
    page = {
        "tags": ["pages"],
        "summary": "The home page",
        "description": "A form for a name in any form.",
        EXAMPLE: "/",
        "parameters": COMMON_PARAMETERS,
        "responses": {"200": answer("The page.", HTML), **answers([403, 414, 429, 500], HTML, PROBLEM)},
    }
    form = {
        "tags": ["resolution"],
        "summary": "Resolve the name in a form",
        "description": "Redirect to the target of the name in `hdl`. Without it, the answer is the home page.",
        "parameters": _OF_RESOLUTION,
        "requestBody": _BODY,
        "responses": {**_resolution_answers(), **answers([413], HTML, PROBLEM)},
    }
    return {"get": page, "post": form}


def _read_record() -> Part:
    return _operations(
        {
            "tags": ["handle API"],
            "summary": "Read a record",
            "description": "The record of a handle as the upstream has it: the order of its values, letter case and "
            "unknown members stay.\n\nAliases are data here and are not followed.",
            EXAMPLE: "/api/handles/10.1000/182?type=URL&pretty",
            "parameters": _OF_HANDLES,
            "responses": _handle_answers(),
        }
    )


def _read_agencies(path: str, summary: str) -> Part:
    names = {"type": "string", "examples": ["10.1000/182,10.5281"]}
    text = f"DOI names or prefixes, at most {MAX_NAMES}, separated by commas; a comma inside a name is `%2C`."
    operation = {
        "tags": ["agencies"],
        "summary": summary,
        "description": "The registration agency of each name, in the order of the names; `/ra/` and `/doiRA/` are the "
        'same.\n\nA name without an agency has a `status` instead: "Invalid DOI", "DOI does not exist", "Unknown" if '
        'it is registered but no record names the agency, or "Could not verify" if the upstream could not be queried. '
        "A browser gets a page.",
        EXAMPLE: f"{path}/10.1000/182,10.5281",
        "parameters": COMMON_PARAMETERS,
        "responses": _agency_answers(),
    }
    return {"parameters": [describe_path("names", text, names)], **_operations(operation)}
