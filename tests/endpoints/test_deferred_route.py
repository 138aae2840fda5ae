"""Routes that are built when they are first used, and the internals of starlette that they rely on."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, Final

from fastapi.routing import APIRoute
from starlette.routing import Match, Route

from doi_proxy.endpoints import USED, DeferredRoute

OPTIONS: Final[dict[str, Any]] = {"methods": ["get", "POST"], "name": "reading"}


def endpoint(name: str) -> str:
    return name


def attributes_of_self(method: Callable[..., Any], context: type[ast.expr_context]) -> set[str]:
    """The attributes of `self` that a method reads (ast.Load) or sets (ast.Store)."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, context)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def test_starlette_matches_by_the_attributes_that_are_used() -> None:
    # Fails when an upgrade changes what DeferredRoute relies on; look at that class, then at USED.
    read = attributes_of_self(Route.matches, ast.Load) | attributes_of_self(Route.url_path_for, ast.Load)
    assert read <= set(USED) <= attributes_of_self(Route.__init__, ast.Store)


def test_the_used_attributes_are_those_of_a_built_route() -> None:
    deferred, built = DeferredRoute("/a/{name}", endpoint, **OPTIONS), APIRoute("/a/{name}", endpoint, **OPTIONS)
    assert {name: deferred.__dict__[name] for name in USED} == {name: getattr(built, name) for name in USED}


def test_a_route_is_built_by_what_reads_another_attribute() -> None:
    route = DeferredRoute("/a/{name}", endpoint)
    match, scope = route.matches({"type": "http", "method": "GET", "path": "/a/b"})
    assert (match, scope["path_params"]) == (Match.FULL, {"name": "b"})
    assert (route.url_path_for("endpoint", name="b"), "dependant" in route.__dict__) == ("/a/b", False)
    assert [field.name for field in route.dependant.path_params] == ["name"]
    assert "dependant" in route.__dict__
