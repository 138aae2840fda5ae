"""The description of the API in the languages of the pages: `texts/api/TAG.toml` of each feature, by path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.web.languages import read_all


@dataclass(frozen=True, slots=True)
class Translation:
    """Texts by keys such as "/{doi}.summary". There are none in the language of the OpenAPI document."""

    texts: Mapping[str, str]

    def find(self, path: str, item: str, method: str = "") -> str | None:
        """The text about an item of a path: "summary", "description", a parameter or a status. None without any.

        Where a path has several methods, the text of its `method`, such as "POST", comes first.
        """
        keys = (f"{method} {path}.{item}", f"{path}.{item}", f"*.{item}")
        return next((self.texts[key] for key in keys if key in self.texts), None)


def read_translation(packages: Sequence[str], language: str) -> Translation:
    """The translation in the texts of `packages`."""
    return Translation(read_all(packages, f"api/{language}"))
