"""The other side: how names are asked, of whom, how often, and what is done when the answer fails."""

import sys

# httpx imports its command-line program where it can, and for it rich and pygments: a seventh of the time to start.
# A module that is None here cannot be imported, which httpx is prepared for.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
