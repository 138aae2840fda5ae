"""The commands of docs/registry-files.md, run in order in one shell, print what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_documented import ROOT
from tests.test_tutorial import PORT, commands, missing_program, outputs, run, script, spare_ports

pytestmark = pytest.mark.repository


@pytest.mark.nightly
@pytest.mark.skipif(missing_program() is not None, reason=f"not installed: {missing_program()}")
def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    ports = spare_ports()
    found = commands(ROOT / "docs/registry-files.md")
    text = PORT.sub(lambda match: match[1] + ports[match[2]], script(found))
    printed = outputs(run(text, tmp_path, {}), len(found))
    assert [(one.text, shown) for one, shown in zip(found, printed, strict=True) if shown != one.output] == []
