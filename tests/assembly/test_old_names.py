"""A setting of the release before is read under its old name, or ignored if it is gone, each with a warning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.assembly.settings import Settings, load
from app.assembly.settings.old_names import REMOVED, RENAMED
from app.cli.main import main
from app.errors import ConfigurationError
from app.features.options import flag_of, variable

OLD, NEW = "upstream_patience", "upstream_stale_timeout"


def test_each_new_name_is_a_setting_and_no_old_one_is() -> None:
    assert set(RENAMED.values()) <= set(Settings.model_fields)
    assert not (set(RENAMED) | REMOVED) & set(Settings.model_fields)


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_sets_the_setting(old: str) -> None:
    field = Settings.model_fields[RENAMED[old]]
    value: object = "x" * 20 if field.default is None else field.default + 1
    assert getattr(load({}, {variable(old): str(value)}), RENAMED[old]) == value


def test_an_old_name_is_read_in_each_source_with_a_warning_that_names_the_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "doi-proxy.toml"
    file.write_text("[upstream]\npatience = 7\n")
    for flags, environment, config in (({OLD: "7"}, {}, None), ({}, {variable(OLD): "7"}, None), ({}, {}, file)):
        assert load(flags, environment, config).upstream_stale_timeout == 7
    flag, environment_name, line = (record.getMessage() for record in caplog.records)
    assert flag.startswith("--upstream-patience: this setting is --upstream-stale-timeout since release ")
    assert environment_name.startswith(f"{variable(OLD)}: this setting is {variable(NEW)} since release ")
    assert line.startswith(f"{file}, line 2: upstream_patience: this setting is stale_timeout in [upstream] since ")


@pytest.mark.parametrize("flags", [{OLD: "1", NEW: "1"}, {NEW: "1"}, {OLD: "1"}])
def test_both_names_at_once_are_refused(flags: dict[str, str]) -> None:
    environment = {variable(name): "1" for name in (OLD, NEW) if name not in flags}
    with pytest.raises(ConfigurationError, match="is also set under its new name"):
        load(flags, environment)


def test_a_wrong_value_under_an_old_name_is_explained_with_its_source() -> None:
    with pytest.raises(
        ConfigurationError, match=r"^DOI_PROXY_UPSTREAM_PATIENCE: this is not a duration.* \(it is 'long'\)"
    ):
        load({}, {variable(OLD): "long"})


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_a_setting_that_is_gone_is_ignored_with_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert load({}, {variable(name): "whatever"}) == Settings()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{variable(name)}: this setting is gone since release ")


def test_commands_accept_the_flags_of_the_release_before(capsys: pytest.CaptureFixture[str]) -> None:
    gone = min(REMOVED)
    assert main(["config", flag_of(OLD), "7", flag_of(gone), "1"]) == 0
    assert f"{variable(NEW)}=7s\n" in capsys.readouterr().out


def test_the_check_reports_settings_that_the_next_release_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    gone = min(REMOVED)
    main(
        [
            "check",
            "--offline",
            "--format=json",
            "--store-url",
            "memory:",
            "--port",
            "0",
            flag_of(OLD),
            "1",
            flag_of(gone),
            "1",
        ]
    )
    findings = {one["source"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    for name in (OLD, gone):
        assert findings[flag_of(name)]["severity"] == "warning"
        assert findings[flag_of(name)]["remedy"] in ("write the new name", "remove it")
