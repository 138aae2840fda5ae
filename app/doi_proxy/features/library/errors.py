"""The errors of library copy."""

from __future__ import annotations

from doi_proxy.errors import InvalidRequest


class CrossSiteForm(InvalidRequest):
    """A page of another site sent this form; open the page of this resolver and send the form there."""

    status = 403
    token = "cross-site-form"
    title = "A page of another site sent the form"
