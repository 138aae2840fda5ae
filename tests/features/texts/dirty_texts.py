"""Texts as people paste them, each with the names that it means. The labels were written before the first run.

`dirty_texts.txt` says how it is written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

_FILE: Final = Path(__file__).with_name("dirty_texts.txt")


@dataclass(frozen=True, slots=True)
class DirtyText:
    """A text and the registered names that it means, in its order."""

    kind: str
    text: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class DirtyTexts:
    """All texts, and registered names that no text means."""

    texts: tuple[DirtyText, ...]
    decoys: tuple[str, ...]

    @cached_property
    def registered(self) -> dict[str, str]:
        """Each registered name by its folded form."""
        meant = [name for one in self.texts for name in one.names]
        return {name.lower(): name for name in (*meant, *self.decoys)}


def read_dirty_texts(file: Path = _FILE) -> DirtyTexts:
    """The content of a file."""
    kind, texts, decoys = "", [], []
    for line in file.read_text(encoding="utf-8").split("\n"):
        names, arrow, text = line.partition(" => ")
        if line.startswith("## "):
            kind = line[3:]
        elif line and not line.startswith("#") and not arrow:
            decoys.append(line)
        elif arrow and not line.startswith("#"):
            decoded = json.loads('"' + text.replace('"', '\\"') + '"', strict=False)
            texts.append(DirtyText(kind, decoded, () if names == "-" else tuple(names.split())))
    return DirtyTexts(tuple(texts), tuple(decoys))
