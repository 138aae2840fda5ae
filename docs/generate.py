"""Writes docs/settings.md and config/doi-proxy.toml from `app.settings.Settings`, so that neither can drift.

`python docs/generate.py` writes both files; with `--check` it writes none, and its exit status is 1 where one differs.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from app.settings import TABLES, Settings, variable  # noqa: E402 - the script also runs where app is not installed

#: The table of settings whose names begin with no table's name.
FIRST_TABLE: Final = TABLES[0]
#: What each table of the TOML file is about, in a heading.
HEADINGS: Final = {
    "server": "The server",
    "client": "Clients",
    "upstream": "The upstream",
    "cache": "The cache",
    "store": "The store",
    "web": "Answers to browsers",
}
#: A description that measures names its unit in one of these words.
UNIT: Final = re.compile(r"\b(seconds|bytes)\b", re.IGNORECASE)

MARKDOWN_HEAD: Final = """\
# Settings

This file is made by `python docs/generate.py` from `app/settings.py`; a test compares the two.

A setting can be given in three places. A later one wins:

1. the TOML file named by `--config FILE` or by the environment variable `DOI_PROXY_CONFIG`; there is none unless named
2. an environment variable
3. a flag of `doi-proxy serve` and of every other command that takes settings

The value of an environment variable may also stand in a file: `DOI_PROXY_STORE_URL_FILE=/run/secrets/store-url` sets
`store_url` to the content of that file, without the white space around it.

A setting that does not exist, in any of the three places, or a value that cannot be used ends the program at once with
exit status 2 and one line that names the setting, where it was given, and why it cannot be used:

```
doi-proxy: DOI_PROXY_CACHE_TTL: there is no such setting (it is '60')
```

`doi-proxy config` prints the settings in force as environment variables. Users, passwords and secret parameters of URLs
are masked, and so is every value that came from a `..._FILE` variable. A setting without a value is a comment. What is
not masked can be read back. In
[config/doi-proxy.toml](../config/doi-proxy.toml) every setting stands with its default, commented out.

Durations are in seconds and may have a fraction; sizes are in bytes. Flags that are yes or no take `true` or `false`.

The last column says what puts a changed setting into force: a reload (SIGHUP, or `systemctl reload doi-proxy`) or a
restart. [operations.md](operations.md) says more about a reload.
"""

TOML_HEAD: Final = """\
# The settings of doi-proxy, each with its default, commented out. Name this file by --config or DOI_PROXY_CONFIG.
# An environment variable, named below each sentence with the type, wins over this file; a flag wins over both.
# Made by docs/generate.py from app/settings.py; docs/settings.md has the same settings as tables.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as it is documented; `schema` is its part of the JSON schema of Settings."""

    name: str
    schema: dict[str, Any]

    @property
    def table(self) -> str:
        """The table of the TOML file that it stands in."""
        head = self.name.partition("_")[0]
        return head if head in TABLES else FIRST_TABLE

    @property
    def key(self) -> str:
        """Its name in that table."""
        return self.name if self.table == FIRST_TABLE else self.name.removeprefix(self.table + "_")

    @property
    def flag(self) -> str:
        """Its flag on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def sentence(self) -> str:
        """What it does."""
        return " ".join(self.schema["description"].split())

    @property
    def reloaded(self) -> bool:
        """Whether SIGHUP puts a change into force."""
        return bool(self.schema.get("reloaded"))

    @property
    def default(self) -> str | None:
        """Its default as TOML, None where it is not set unless given."""
        given = self.schema.get("default")
        return None if given is None else toml(given)

    @property
    def kind(self) -> str:
        """Its type, the values it may have, and its unit."""
        schema = next((one for one in self.schema.get("anyOf", ()) if one.get("type") != "null"), self.schema)
        if "enum" in schema:
            return " or ".join(f"`{one}`" for one in schema["enum"])
        words = {"integer": "whole number", "boolean": "`true` or `false`", "string": "text"}
        kind = words.get(schema.get("type", ""), schema.get("type", "text"))
        kind = "path of a file" if schema.get("format") in ("path", "file-path") else kind
        unit = UNIT.search(self.sentence) if schema.get("type") in ("integer", "number") else None
        return ", ".join([kind, *limits(schema), *([unit[1].lower()] if unit else ())])


def limits(schema: dict[str, Any]) -> Iterator[str]:
    """The bounds of a number, in words."""
    if "exclusiveMinimum" in schema:
        yield f"over {plain(schema['exclusiveMinimum'])}"
    if "minimum" in schema:
        yield f"at least {plain(schema['minimum'])}"
    if "maximum" in schema:
        yield f"at most {plain(schema['maximum'])}"


def plain(number: float) -> str:
    """A number without a fraction of zero."""
    return str(int(number)) if number == int(number) else str(number)


def toml(value: Any) -> str:
    """A default as TOML writes it; JSON writes texts, numbers, booleans and lists of them in the same way."""
    if isinstance(value, float):
        return plain(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def settings() -> list[Setting]:
    """Every setting, in the order of the model."""
    properties = Settings.model_json_schema()["properties"]
    return [Setting(name, schema) for name, schema in properties.items()]


def write_markdown(found: list[Setting]) -> str:
    """docs/settings.md."""
    parts = [MARKDOWN_HEAD]
    for table in TABLES:
        lines = [
            f"## {HEADINGS[table]}: `[{table}]`\n",
            "| key | environment variable | flag | type and unit | default | what it is | a change needs |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for one in found:
            if one.table == table:
                default = "not set" if one.default is None else f"`{one.default}`"
                names = (f"`{one.key}`", f"`{variable(one.name)}`", f"`{one.flag}`")
                cells = (*names, one.kind, default, one.sentence, "a reload" if one.reloaded else "a restart")
                lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def write_toml(found: list[Setting]) -> str:
    """config/doi-proxy.toml: loads as it stands, to the defaults."""
    parts = [TOML_HEAD]
    for table in TABLES:
        parts.append(f"[{table}]\n")
        for one in found:
            if one.table == table:
                default = '"…"  # not set' if one.default is None else one.default
                reload = "; reloaded at SIGHUP" if one.reloaded else ""
                about = f"# {one.sentence}\n# {variable(one.name)}: {one.kind.replace('`', '')}{reload}"
                parts.append(f"{about}\n#{one.key} = {default}\n")
    return "\n".join(parts)


def generated() -> dict[Path, str]:
    """The files made, by path below the project's root, with their content."""
    found = settings()
    return {Path("docs/settings.md"): write_markdown(found), Path("config/doi-proxy.toml"): write_toml(found)}


def main(arguments: list[str]) -> int:
    """Write the files, or with --check say which differ."""
    different = 0
    for path, content in generated().items():
        if arguments == ["--check"]:
            if not (ROOT / path).exists() or (ROOT / path).read_text(encoding="utf-8") != content:
                print(f"{path} differs from app/settings.py: run python docs/generate.py", file=sys.stderr)
                different = 1
        else:
            (ROOT / path).write_text(content, encoding="utf-8")
    return different


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
