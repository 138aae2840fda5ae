"""The contrast of the colours."""

from __future__ import annotations

import pytest

from doi_proxy.features.branding.branding import check_contrast, contrast, read_palettes
from doi_proxy.web.look import read_stylesheet


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(scheme: str) -> None:
    check_contrast(read_palettes(read_stylesheet())[scheme], scheme, "accent", "background")


@pytest.mark.parametrize(
    ("one", "other", "ratio"),
    [("#000000", "#ffffff", 21.0), ("#ffffff", "#ffffff", 1.0), ("#767676", "#ffffff", 4.54)],
)
def test_the_contrast_is_that_of_wcag(one: str, other: str, ratio: float) -> None:
    assert round(contrast(one, other), 2) == ratio
