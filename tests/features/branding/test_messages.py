"""The texts of an institution: what a file may replace, and what it must have."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.branding.branding import MAX_MESSAGES_BYTES as MAX_FILE_BYTES
from doi_proxy.features.branding.branding import check_contrast, read_messages, read_palettes
from doi_proxy.web.languages import CORE, Catalogue, load_catalogues
from doi_proxy.web.look import read_stylesheet


def load(tags: tuple[str, ...], folder: Path) -> dict[str, Catalogue]:
    found = read_messages(tags, folder, (CORE,))
    return load_catalogues(tags, own={tag: translation.texts for tag, translation in found.items()})


def test_a_file_of_the_institution_can_be_a_new_language(tmp_path: Path) -> None:
    own = resources.files("doi_proxy.web").joinpath("texts", "en.toml").read_text("utf-8")
    (tmp_path / "it.toml").write_text(own.replace("Skip to content", "Vai al contenuto"), "utf-8")
    assert load(("en", "it"), tmp_path)["it"].texts["site.skip"] == "Vai al contenuto"


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('[home]\ntitle = "x"\nlead = y\n', r"de\.toml, line 3: not valid TOML"),
        ('[home]\ntitle = "x"\ntitel = "y"', r"de\.toml, line 3: home\.titel: the program has no such text"),
        ('[title]\n[site]\n\nversion = "{v}"', r"de\.toml, line 4: site\.version: this text has no placeholder \{v\}"),
        ('[site]\nversion = "{version"', r"de\.toml, line 2: site\.version: the braces are wrong"),
        ('[site]\n"version" = "{version.x}"', r"de\.toml, line 2: site\.version: this text has no placeholder"),
        ('[site]\nversion = "{version:>999999999}"', r"de\.toml, line 2: site\.version: .*a name alone"),
        ('[site]\nversion = "{version:{version}}"', r"de\.toml, line 2: site\.version: .*a name alone"),
        ('[site]\nversion = "{version!r}"', r"de\.toml, line 2: site\.version: .*a name alone"),
        ("[site]\nversion = " + "[" * 100_000, r"de\.toml, line 1: the tables or arrays are nested too deep"),
        ("[site]\nversion = " + "9" * 5_000, r"de\.toml, line 1: not valid TOML"),
        ("[brand]\nfooter = 1", r"de\.toml, line 2: footer: this is not a text"),
        ('[brand]\nlogo = "x.svg"', r"de\.toml, line 2: logo: this key is not known"),
        ('[brand.help_links]\nAsk = "ask"', r"de\.toml, line 1: help_links: 'ask' is not an address"),
        ("#" * (MAX_FILE_BYTES + 1), r"de\.toml: the language file cannot be read: it is larger than"),
    ],
)
def test_a_broken_file_of_the_institution_is_named_with_its_line(tmp_path: Path, toml: str, message: str) -> None:
    (tmp_path / "de.toml").write_text(toml, "utf-8")
    with pytest.raises(ConfigurationError, match=message):
        read_messages(("en", "de"), tmp_path, (CORE,))


def test_a_file_of_the_institution_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "en.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=r"en\.toml: the language file cannot be read"):
        read_messages(("en",), tmp_path, (CORE,))


# --- The contrast of the colours -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(scheme: str) -> None:
    check_contrast(read_palettes(read_stylesheet())[scheme], scheme, "accent", "background")
