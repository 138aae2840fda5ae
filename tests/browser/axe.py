"""axe-core, which checks a page for what WCAG 2.1 asks at levels A and AA; installed from the lock beside this file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Page

HERE: Final = Path(__file__).resolve().parent
RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
#: For the installation, in seconds.
MAX_SECONDS: Final = 120
_RUN: Final = """async (tags) => {
  const found = await axe.run(document, {runOnly: {type: "tag", values: tags}});
  const violations = found.violations.map((one) => [one.id, one.nodes.map((node) => node.html.slice(0, 120))]);
  return {violations, passes: found.passes.length};
}"""


def axe_source() -> str:
    """The script, to be run before a page's own; skips the test where npm is missing."""
    installed = HERE / "node_modules" / "axe-core" / "axe.min.js"
    lock = HERE / "package-lock.json"
    if not installed.exists() or installed.stat().st_ctime < lock.stat().st_mtime:
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("the accessibility rules are installed by npm: apt-get install nodejs npm")
        command = [npm, "ci", "--prefix", str(HERE), "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=MAX_SECONDS)
        assert done.returncode == 0, done.stderr
    return installed.read_text("utf-8")


async def audit(page: Page) -> tuple[list[Any], int]:
    """The rules that a page breaks, each with the elements, and how many rules it keeps."""
    found = await page.evaluate(_RUN, RULES)
    return found["violations"], found["passes"]
