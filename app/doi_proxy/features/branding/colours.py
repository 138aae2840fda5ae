"""The colours of the pages: what an institution may change, and the contrast that must remain."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from doi_proxy.system.toml_text import WrongTable

#: The least contrast of text (WCAG 2.1, 1.4.3) and of the edge of a field (1.4.11).
TEXT_CONTRAST: Final = 4.5
EDGE_CONTRAST: Final = 3.0
SCHEMES: Final = ("light", "dark")
#: Paper is light.
_MEDIA: Final = {"light": "print, (prefers-color-scheme: light)", "dark": "screen and (prefers-color-scheme: dark)"}
#: What lies under text.
GROUNDS: Final = ("paper", "raised", "tint", "warn-tint")
#: The colours of text that is written on each of GROUNDS.
TEXTS: Final = ("ink", "quiet", "accent")
#: The two colours of text on a button.
_ON_ACCENT: Final = ("#ffffff", "#0b1d24")
#: The shares of the accent in the ground of a notice, and in its frame.
_TINTS: Final = (0.07, 0.25)
_COLOUR: Final = re.compile(r"#[0-9a-fA-F]{6}")
_VARIABLE: Final = re.compile(r"--([a-z-]+): (#[0-9a-f]{6});")

#: Colours such as "#0b5a73" by the names of their variables in the stylesheet, without the dashes.
Palette = Mapping[str, str]


def read_palettes(stylesheet: str) -> dict[str, dict[str, str]]:
    """The colours of each scheme in the stylesheet, which has the dark ones in its first media query."""
    light, dark = (dict(_VARIABLE.findall(part)) for part in stylesheet.split("@media", 2)[:2])
    return {"light": light, "dark": light | dark}


def brand_stylesheet(stylesheet: str, colours: Mapping[str, str]) -> str:
    """The rules to append for an institution's colours, "" if there are none. Raises WrongTable.

    `colours` has "accent" and "background" for the light scheme, "accent_dark" and "background_dark" for the dark one.
    """
    palettes = read_palettes(stylesheet)
    rules = []
    for scheme in SCHEMES:
        suffix = "" if scheme == "light" else "_dark"
        changed = _change(colours, suffix, palettes[scheme]["paper"])
        if changed:
            palette = palettes[scheme] | changed
            check_contrast(palette, scheme, "accent" + suffix, "background" + suffix)
            variables = " ".join(f"--{name}: {colour};" for name, colour in changed.items())
            rules.append(f"@media {_MEDIA[scheme]} {{ :root {{ {variables} }} }}\n")
    return "".join(rules)


def _change(colours: Mapping[str, str], suffix: str, paper: str) -> dict[str, str]:
    changed = {}
    for name, variable in (("accent", "accent"), ("background", "paper")):
        key = name + suffix
        colour = colours.get(key, "")
        if colour and not _COLOUR.fullmatch(colour):
            raise WrongTable(f"{colour[:40]!r} is not a colour; write six hexadecimal digits, as in #0b5a73", key)
        if colour:
            changed[variable] = colour.lower()
    if "accent" in changed:
        accent = changed["accent"]
        changed["on-accent"] = max(_ON_ACCENT, key=lambda text: contrast(text, accent))
        paper = changed.get("paper", paper)
        changed["tint"], changed["tint-line"] = (mix(accent, paper, share) for share in _TINTS)
    return changed


def check_contrast(palette: Palette, scheme: str, accent: str, background: str) -> None:
    """Raise WrongTable if a text could not be read. `accent` and `background` are the keys of the colours."""
    pairs = [(text, ground, TEXT_CONTRAST) for text in TEXTS for ground in GROUNDS]
    pairs += [("on-accent", "accent", TEXT_CONTRAST), ("warn", "warn-tint", TEXT_CONTRAST)]
    pairs += [("edge", ground, EDGE_CONTRAST) for ground in ("paper", "raised")]
    for text, ground, least in pairs:
        ratio = contrast(palette[text], palette[ground])
        if ratio < least:
            key = accent if "accent" in (text, ground) else background
            change = "darker" if (scheme == "light") == ("accent" in (text, ground)) else "lighter"
            raise WrongTable(
                f"{palette[text]} ({text}) on {palette[ground]} ({ground}) has a contrast of {ratio:.2f}:1 "
                f"in the {scheme} scheme; WCAG 2.1 needs {least}:1. Choose a {change} colour",
                key,
            )


def mix(colour: str, ground: str, share: float) -> str:
    """A share of a colour on a ground."""
    pairs = ((int(paint[at : at + 2], 16) for paint in (colour, ground)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(share * ours + (1 - share) * under):02x}" for ours, under in pairs)


def contrast(colour: str, other: str) -> float:
    """The contrast ratio of two colours, 1 to 21 (WCAG 2.1, definition of contrast ratio)."""
    brighter, darker = sorted((_luminance(colour), _luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    """The relative luminance of a colour (WCAG 2.1, definition of relative luminance)."""
    red, green, blue = (_linear(int(colour[place : place + 2], 16) / 255) for place in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(component: float) -> float:
    return component / 12.92 if component <= 0.04045 else float(((component + 0.055) / 1.055) ** 2.4)
