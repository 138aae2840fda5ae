"""The library by itself: what its import loads, and the examples of its page in the manual."""

from __future__ import annotations

import doctest
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Prints the modules that an import adds, but for those of the standard library.
_LOADED = """
import importlib, json, pkgutil, sys
import doi_names
for module in pkgutil.walk_packages(doi_names.__path__, "doi_names."):
    importlib.import_module(module.name)
own = [name for name in sys.modules if name.partition(".")[0] not in sys.stdlib_module_names | {"__main__"}]
print(json.dumps([name for name in own if not name.startswith(("doi_names", "_virtualenv", "__editable__"))]))
"""


@pytest.mark.process
def test_all_of_it_needs_the_standard_library_alone() -> None:
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'app')!r})\n{_LOADED}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_the_examples_of_its_page_are_true() -> None:
    page = (ROOT / "docs/doi-names.md").read_text("utf-8")
    examples = "\n".join(re.findall(r"^```pycon\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, "doi-names.md", None, 0)
    assert len(test.examples) > 10
    assert doctest.DocTestRunner().run(test).failed == 0
