"""Schemathesis: requests that are made from /openapi.json, and what is wrong with their answers.

A number is the seed of the requests of one round: the same number sends the same requests everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from tests.hostile.conftest import ADMIN_TOKEN

#: Requests for one operation in one round.
EXAMPLES: Final = 3
#: 500 is a fault of this program, although the document has it.
_FAULT: Final = 500
_UNREADABLE: Final = (400, 408, 431)
_LIMITS: Final = settings(
    max_examples=EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
_CHECKS: Final = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


class DocumentedRequests:
    """Requests of one mode (valid or invalid) for the operations of the proxy at `url`."""

    def __init__(self, url: str, mode: GenerationMode) -> None:
        self._strategies: dict[str, Any] = {}
        for result in schemathesis.openapi.from_url(f"{url}/openapi.json").get_all_operations():
            assert isinstance(result, Ok), result
            operation = result.ok()
            self._strategies[operation.label] = operation.as_strategy(generation_mode=mode)
        self.sent = 0
        #: A request for each kind of answer that the document does not describe, as a curl command.
        self.undocumented: dict[str, str] = {}

    def send_round(self, number: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Send the requests of one round to each operation, until `is_over`."""
        for label in list(self._strategies):
            if is_over():
                return
            try:
                seed(number)(_LIMITS(given(case=self._strategies[label])(self._send)))()
            except Unsatisfiable:
                # An operation without a schema that a request could break.
                del self._strategies[label]

    # A failure is noted instead of raised: Hypothesis would send many more requests to simplify the first one.
    def _send(self, case: Any) -> None:
        self.sent += 1
        for failure in _failures_of(case):
            self.undocumented.setdefault(f"{case.operation.label}: {failure}", case.as_curl_command())


def _failures_of(case: Any) -> list[str]:
    """What is wrong with the answer to a request, without the parts that differ between requests."""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"} if case.operation.path.startswith("/admin") else {}
    response = case.call(headers=headers, timeout=30, allow_redirects=False)
    if response.status_code == _FAULT:
        return ["status 500"]
    # The description says once for all paths what the server answers to a request that it cannot read.
    if response.status_code in _UNREADABLE and response.headers.get("connection") == ["close"]:
        return []
    try:
        case.validate_response(response, checks=_CHECKS)
    except FailureGroup as group:
        return [_describe(response.status_code, failure) for failure in group.exceptions]
    return []


def _describe(status: int, failure: Failure) -> str:
    return f"{status}, {type(failure).__name__}: {failure.message or failure.title}"[:300]
