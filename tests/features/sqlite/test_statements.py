"""SQL statements are written as every version of Python takes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

APP: Final = Path(__file__).resolve().parents[3] / "app" / "doi_proxy"
#: For Python, `?1` is the name of a value. From 3.12 it warns of a sequence of values, and from 3.14 refuses it.
NUMBERED: Final = re.compile(r"(?:[=<>(,]|LIMIT|VALUES) *\?[0-9]")


def test_no_placeholder_has_a_number() -> None:
    assert NUMBERED.search("key = ?1") and NUMBERED.search("LIMIT ?2")
    assert [file.name for file in APP.rglob("*.py") if NUMBERED.search(file.read_text("utf-8"))] == []
