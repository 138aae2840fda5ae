"""The errors of `/references`, and how its page explains an error in the language of the reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from doi_proxy.errors import DoiProxyError, RequestTooLarge, TooManyRequests, UnreadableList
from doi_proxy.features.lists.feature import TooManyBatches


class UnreadableReferences(UnreadableList):
    """The references cannot be read."""

    def __init__(self, key: str, detail: str = "") -> None:
        super().__init__()
        self.problem = PageProblem(f"references.refused_{key}", detail=detail)


class TooManyReferences(RequestTooLarge):
    """The references are more than one page checks."""

    def __init__(self, key: str, **limits: int) -> None:
        super().__init__()
        self.problem = PageProblem(f"references.refused_{key}", limits)


@dataclass(frozen=True, slots=True)
class PageProblem:
    """The key of a sentence, the numbers in it, and what is wrong with a file, in English, or ""."""

    key: str
    limits: Mapping[str, int] = field(default_factory=dict)
    detail: str = ""


def describe_error(error: DoiProxyError | None) -> PageProblem | None:
    """What the page says about an error: one of its own, of the reader of lists, or of a client over its limit."""
    if error is None:
        return None
    if isinstance(error, UnreadableReferences | TooManyReferences):
        return error.problem
    if isinstance(error, TooManyBatches):
        return PageProblem("references.refused_busy")
    if isinstance(error, TooManyRequests):
        return PageProblem("error.too_many")
    return PageProblem("references.refused_list", detail=error.message)
