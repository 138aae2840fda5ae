"""`doi-proxy config` prints settings that the program can read again, each with its source."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doi_proxy.assembly.settings import Settings, build, load
from doi_proxy.assembly.settings.sources import read_sources
from doi_proxy.commands.show import Form, show_settings
from doi_proxy.system.options import variable

#: Text as a settings file or a variable can have it.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
CHANGED = st.fixed_dictionaries(
    {},
    optional={
        "admin_token": st.none(),
        "branding_name": TEXT.filter(bool),
        "seed": st.just(Path("a b/ü.ndjson")),
        "port": st.integers(0, 65535),
        "upstream_rate": st.floats(0.001, 1e6),
        "express_lane": st.booleans(),
        "mode": st.sampled_from(["online", "sealed"]),
        "public_url": st.just("https://doi.example.org/doi"),
        "cache_grace": st.floats(1e-9, 3e8) | st.integers(0, 300_000_000),
        "upstream_timeout": st.floats(0.001, 3_600),
        "cache_memory_bytes": st.integers(0, 100 * 1024**4),
        "metadata": st.booleans(),
        "trusted_proxies": st.lists(st.sampled_from(["127.0.0.1", "::1", "10.0.0.0/8"])).map(tuple),
        "upstream_url": st.just(("https://doi.org", "http://b.example:80/a")),
    },
)


def shown(flags: dict[str, object], form: Form, capsys: pytest.CaptureFixture[str], **environment: str) -> str:
    values = read_sources(
        flags, {variable(name): value for name, value in environment.items()}, None, Settings.model_fields
    )
    show_settings(build(values), values, form, sources=True)
    return capsys.readouterr().out


def variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.split("\n") if line and not line.startswith("#"))


@given(flags=CHANGED)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_toml_file_gives_the_same_settings(
    flags: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shown.toml"
    file.write_bytes(shown(flags, "toml", capsys).encode())
    assert load({}, {}, file) == Settings(**flags)


@given(flags=CHANGED)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_variables_give_the_same_settings_except_for_line_breaks_and_empty_texts(
    flags: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    one_line = {
        name: value for name, value in flags.items() if value not in ("", ()) and not {"\n", "\r"} & set(str(value))
    }
    assert load({}, variables(shown(flags, "env", capsys))) == Settings(**one_line)


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("env", ("DOI_PROXY_PORT=9", "DOI_PROXY_INSTANCE=2", "DOI_PROXY_UPSTREAM_RATE=3", "DOI_PROXY_HOST=127.0.0.1")),
        ("toml", ("port = 9", 'instance = "2"', "rate = 3.0", 'host = "127.0.0.1"')),
    ],
)
def test_each_setting_has_its_source_if_it_is_wanted(
    form: Form, names: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "doi-proxy.toml"
    file.write_text("[upstream]\nrate = 3\n")
    values = read_sources({"port": "9"}, {"DOI_PROXY_INSTANCE": "2"}, file, Settings.model_fields)
    show_settings(build(values), values, form, sources=True)
    text = capsys.readouterr().out
    sources = ("--port", "DOI_PROXY_INSTANCE", f"{file}, line 2: upstream_rate", "default")
    for name, source in zip(names, sources, strict=True):
        assert f"# {source}\n{name}\n" in text
    show_settings(build(values), values, form, sources=False)
    without = [line for line in text.splitlines() if not line.startswith("# ")]
    assert capsys.readouterr().out.splitlines() == without


@pytest.mark.parametrize("form", ["env", "toml"])
def test_a_masked_value_is_a_comment_that_is_not_read_back(form: Form, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown({}, form, capsys, store_url="redis://user:geheim@host.example/0")
    (line,) = [line for line in text.split("\n") if "host.example" in line]
    assert line.startswith("#") and "geheim" not in text
