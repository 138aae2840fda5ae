"""This program reads the vectors that it publishes for other libraries (docs/vectors/parse.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from doi_names.derived import parse
from doi_names.find_names import find_names
from doi_names.presentation import read_typed
from doi_proxy.features.texts.command import to_object

VECTORS: Final[dict[str, list[dict[str, Any]]]] = json.loads(
    Path(__file__).parents[3].joinpath("docs/vectors/parse.json").read_text("utf-8")
)


@pytest.mark.parametrize("vector", VECTORS["read"], ids=lambda one: repr(one["text"]))
def test_a_text_is_read_as_the_vector_says(vector: dict[str, Any]) -> None:
    best = to_object(parse(vector["text"]), "https://doi.org")["best"]
    assert (best and best["doi"]) == vector["doi"]


@pytest.mark.parametrize("vector", VECTORS["find"], ids=lambda one: repr(one["text"]))
def test_the_names_in_a_text_are_those_of_the_vector(vector: dict[str, Any]) -> None:
    assert [found.name.text for found in find_names(vector["text"])] == vector["names"]


@pytest.mark.parametrize("vector", VECTORS["same"], ids=lambda one: f"{one['a']} {one['b']}")
def test_two_names_are_compared_as_the_vector_says(vector: dict[str, Any]) -> None:
    assert (read_typed(vector["a"]).key == read_typed(vector["b"]).key) is vector["same"]


@pytest.mark.parametrize("vector", VECTORS["url"], ids=lambda one: repr(one["doi"]))
def test_a_name_and_its_url_lead_to_each_other(vector: dict[str, Any]) -> None:
    read = to_object(parse(vector["url"]), "https://doi.example.org")
    assert (read["doi"], read["doi_org_url"]) == (vector["doi"], vector["url"])


def test_no_vector_is_there_twice() -> None:
    for group, vectors in VECTORS.items():
        if group != "version":
            assert len({json.dumps(one) for one in vectors}) == len(vectors) > 5, group
