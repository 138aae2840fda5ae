"""Routes of FastAPI that are built when they are first used.

Only this module relies on internals of starlette's Route. USED lists them, and a test compares the list with the
installed starlette.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.routing import compile_path, get_name

from doi_proxy.endpoints.known_parameters import list_parameters, refuse_slips

#: The attributes that `Route.matches`, `Route.url_path_for` and our own list of paths read, all without building.
USED: Final = ("path", "endpoint", "name", "methods", "path_regex", "path_format", "param_convertors")


class DeferredRoute(APIRoute):
    """A route that knows its path and methods, and that FastAPI builds when anything else of it is read.

    FastAPI reads signatures and models for 0.35 ms a route, 11 of the 22 ms that it takes to build an application. A
    process uses few of its routes, and most processes only `/healthz`.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], *, methods: Any = None, **options: Any) -> None:
        # Those of USED, as starlette's Route has them.
        self.path, self.endpoint, self.name = path, endpoint, options.get("name") or get_name(endpoint)
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods = {method.upper() for method in methods or ("GET",)}
        self._options: dict[str, Any] | None = options

    def __getattr__(self, name: str) -> Any:
        # Called for what is missing. Another thread may build the same meanwhile.
        options = self.__dict__.get("_options")
        if options is None:
            raise AttributeError(name)
        super().__init__(self.path, self.endpoint, methods=self.methods, **options)
        self._options = None
        return getattr(self, name)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What FastAPI calls, after a check of the names of the query parameters."""
        answer, known = super().get_route_handler(), list_parameters(self.dependant)

        async def check_and_answer(request: Request) -> Response:
            if known and request.scope["query_string"]:
                refuse_slips(request.query_params, known)
            return await answer(request)

        return check_and_answer
