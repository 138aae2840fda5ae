"""`GET /admin/explain`: why a client gets its answer about a name."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import FastAPI, Query, Request

from doi_names.presentation import read_typed
from doi_proxy.endpoints import audit
from doi_proxy.errors import InvalidParameter
from doi_proxy.features.explain.explainer import ExplainedRequest, Explainer, ExplainReport
from doi_proxy.features.explain.feature import EXPLAIN_PATH
from doi_proxy.features.feature import Context, Core
from doi_proxy.web.redirect import Face
from doi_proxy.web.request_path import read_address

#: The client of a request that names none, and the Accept of a browser.
THIS_MACHINE: Final = "127.0.0.1"
ACCEPT: Final = "text/html,application/xhtml+xml,*/*;q=0.8"
#: Characters of a header in a request.
_MAX_HEADER: Final = 1_000


def add_explain(app: FastAPI, context: Context, core: Core, face: Face) -> None:
    """Add the route to the application behind the gate of operators."""
    explainer = Explainer(context, core, face)

    @app.get(
        EXPLAIN_PATH,
        tags=["Operate"],
        summary="Explain the answer that a client gets about a name",
        response_description="Every decision, in order.",
        openapi_extra={"x-example": f"{EXPLAIN_PATH}?doi=10.1000/182"},
    )
    async def explain(
        request: Request,
        doi: Annotated[str, Query(description="A name, in any form.", examples=["10.1000/182"])],
        client: Annotated[str, Query(description="The address of the client.")] = THIS_MACHINE,
        accept: Annotated[str, Query(max_length=_MAX_HEADER, description="Its header Accept.")] = ACCEPT,
        language: Annotated[
            str | None, Query(max_length=_MAX_HEADER, description="Its header Accept-Language.")
        ] = None,
        fetch: Annotated[bool, Query(description="Whether a query is sent if one is needed.")] = False,
    ) -> ExplainReport:
        if read_address(client) is None:
            raise InvalidParameter(f"{client[:80]!r} is not an IP address.")
        explained = ExplainedRequest(read_typed(doi), client, accept, language)
        report = await explainer.explain(explained, fetch=fetch)
        # The address of a reader stays out of the audit line.
        audit(request, "explain", {"doi": explained.name.text, "fetch": fetch}, f"status {report.status}")
        return report
