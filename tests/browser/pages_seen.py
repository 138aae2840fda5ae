"""Every page that a person may see, as a real proxy answers it: under a name, its path and its status."""

from __future__ import annotations

from typing import Final

from tests.browser import site

EVERY_PAGE: Final[dict[str, tuple[str, int]]] = {
    "home": ("/", 200),
    "values": (f"/{site.WORK}?noredirect", 200),
    "values of every format": (f"/{site.EVERY_FORMAT}?noredirect", 200),
    "values, stale": (f"/{site.STALE}?noredirect", 200),
    "values, not a web target": (f"/{site.SCRIPT_TARGET}", 200),
    "no such values": (f"/{site.WORK}?type=EMAIL", 200),
    "prefix": ("/10.5555", 200),
    "not found": (f"/{site.UNKNOWN}", 404),
    "not found, trailing slash": (f"/{site.WORK}/", 404),
    "not found, odd characters": (f"/{site.UNKNOWN}%E2%80%8B%EE%80%80).", 404),
    "not found, suggestions": ("/10.5555.work", 404),
    "not a DOI": ("/about-us", 400),
    "not a DOI, a handle": ("/20.500.12345/1", 400),
    "not a DOI, suggestions": ("/Author%20et%20al.%2C%2010.5555%2Fwork%3B%2010.5555%2Fother.", 400),
    "could not verify": (f"/{site.UNREACHABLE}", 502),
    "alias chain": (f"/{site.LOOP}", 404),
    "inactive prefix": (f"/{site.INACTIVE}?locatt=id:1", 404),
    "gone": (f"/{site.GONE}", 410),
    "prefix denied": (f"/{site.DENIED}", 403),
    "too many requests": (f"/{site.BYPASSING}", 429),
    "address too long": (f"/{site.TOO_LONG}", 414),
    "documentation": ("/docs", 200),
    "help": (f"/help/{site.STALE}", 200),
    "help, never resolved": (f"/help/{site.UNKNOWN}", 404),
    "locations": (f"/{site.EVERY_FORMAT}?action=showurls", 200),
    "which agency, form": ("/ra/", 200),
    "which agency": (f"/ra/{site.WORK},10.5555,{site.UNKNOWN},about-us", 200),
    "privacy": ("/privacy", 200),
    "references": ("/references", 200),
    "library services": ("/preferences", 200),
    "status": ("/status", 200),
    "OpenURL without a DOI": ("/openurl?title=Hamlet", 400),
    "file not found": ("/static/nothing.css", 404),
}

#: The pages after a text in the form: under a name, the text.
AFTER_THE_FORM: Final[dict[str, str]] = {
    "found in a text": f"Smith J (2021). A work. AMA J Ethics 23(7):550. doi:{site.WORK}.",
    "found in a text, several": f"Smith J (2021). A work. doi:{site.WORK}; Jones A (2022). Another. doi:{site.STALE}.",
}
