"""Schemathesis: valid and invalid requests from /openapi.json get an answer that the document describes."""

from __future__ import annotations

from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

from tests.cluster.processes import Proxy

#: Requests for each operation, half of which break the schema.
_EXAMPLES: Final = 15
#: 500 is a fault of this program; docs/errors.md names all others.
_FAULT: Final = 500


@pytest.fixture(scope="module")
def operations(proxy: Proxy) -> dict[str, Any]:
    """Each operation of the document by its label."""
    schema = schemathesis.openapi.from_url(f"{proxy.url}/openapi.json")
    found = {}
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        found[operation.label] = operation
    return found


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_generated_requests_get_a_documented_answer(operations: dict[str, Any], mode: GenerationMode) -> None:
    strategies = st.one_of([operation.as_strategy(generation_mode=mode) for operation in operations.values()])

    @settings(
        max_examples=_EXAMPLES * len(operations),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategies)
    def ask(case: Any) -> None:
        response = case.call(timeout=30)
        assert response.status_code != _FAULT, case.as_curl_command()
        documented = set(case.operation.definition.raw["responses"])
        assert {str(response.status_code), "default"} & documented or 400 <= response.status_code < 500, (
            response.status_code,
            case.as_curl_command(),
        )

    ask()
