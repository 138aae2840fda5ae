"""How a command line names the standard streams of the process in place of a file."""

from __future__ import annotations

from typing import Final

STANDARD_INPUT: Final = "-"
STANDARD_OUTPUT: Final = "-"
