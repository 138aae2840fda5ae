"""Writes docs/settings.md and config/doi-proxy.toml from `doi_proxy.assembly.settings.Settings`, the list of features
in docs/architecture.md.

A test checks that they match. `python docs/generate.py` writes all files. `--check` writes none, and exits with status
1 if one differs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "app"), str(ROOT / "docs")]

from import_drawing import draw_imports  # noqa: E402

from doi_proxy.assembly.features import load_feature  # noqa: E402
from doi_proxy.assembly.settings import Settings  # noqa: E402
from doi_proxy.features import NAMES  # noqa: E402
from doi_proxy.system.options import DEPRECATED, WrittenForm, find_form, flag_of, variable  # noqa: E402

#: What each table of the TOML file is about, in a heading.
HEADINGS: Final = {
    "server": "Server",
    "client": "Clients",
    "upstream": "Upstream",
    "cache": "Cache",
    "store": "Store",
    "library": "Library copy",
    "branding": "The institution's own face",
    "admin": "The admin API",
    "status": "The status page",
    "otel": "Traces",
    "native": "The native Handle protocol for other programs",
}
#: The beginning of the list in docs/architecture.md.
FEATURES: Final = "## The features\n\n| feature | what it does |\n| --- | --- |\n"
#: The beginning of the drawing in docs/architecture.md.
IMPORTS: Final = "## The imports, drawn\n\n```\n"

MARKDOWN_HEAD: Final = """\
# Settings

`python docs/generate.py` writes this page from `app/doi_proxy/assembly/settings/`.

A setting can be set in three places. A flag wins over an environment variable, and both win over the file:

1. in a TOML file, which `--config FILE` or the environment variable `DOI_PROXY_CONFIG` names (none by default)
2. in an environment variable
3. by a flag of `doi-proxy serve`, or of any other command that uses settings

An environment variable without a text counts as not set.

An environment variable can also be read from a file: `DOI_PROXY_STORE_URL_FILE=/run/secrets/store-url` sets `store_url`
to the content of that file, without the white space around it. It wins over `DOI_PROXY_STORE_URL`, which may be the
default of a container image.

An unknown setting, or a value that cannot be used, ends the program with exit status 2. One line says which setting,
where it was set, and what is wrong with it:

```
doi-proxy: DOI_PROXY_CACHE_TTL: there is no such setting; did you mean DOI_PROXY_CACHE_TTL_FLOOR? (it is '60')
```

`doi-proxy config` prints the effective settings, and `doi-proxy check` names every value that cannot be used or has no
effect: [commands.md](commands.md). [config/doi-proxy.toml](../config/doi-proxy.toml) lists
every setting with its default, commented out.

Values are written as people write them, in all three places alike:

| type | forms |
| --- | --- |
| duration | a number and a unit: `500ms`, `1.8s`, `15m`, `12h`, `30d`; a number alone is seconds |
| size | a number and a unit, in powers of 1024: `64K`, `256M`, `1.5G`, `2T`; a whole number alone is bytes |
| list | in the TOML file an array, `["127.0.0.1", "::1"]`; elsewhere a text with commas, `127.0.0.1, ::1` |
| `on` or `off` | also `true` or `false`; in the TOML file without quotation marks too |

The last line of a setting has its key in the file, its environment variable and its flag, then its type, its default,
and how a change takes effect: by a reload (SIGHUP, or `systemctl reload 'doi-proxy@*'`) or by a restart.
[operations.md](operations.md#signals) describes the reload.
"""

TOML_HEAD: Final = """\
# The settings of doi-proxy, each with its default, commented out. Pass this file by --config or DOI_PROXY_CONFIG.
# The line below each description has the environment variable and the type. The variable wins over this file, and a
# command-line flag wins over both. docs/generate.py writes this file; docs/settings.md shows the same.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting for the documentation. `schema` is its part of the JSON schema of Settings."""

    name: str
    schema: dict[str, Any]

    @property
    def table(self) -> str:
        """The table of the TOML file that contains the setting."""
        return Settings.table_and_key(self.name)[0]

    @property
    def key(self) -> str:
        """The name in that table."""
        return Settings.table_and_key(self.name)[1]

    @property
    def flag(self) -> str:
        """The flag on the command line."""
        return flag_of(self.name)

    @property
    def sentence(self) -> str:
        """The description, on one line."""
        removal = (
            f"Deprecated: the next minor release removes it; {remedy}." if (remedy := DEPRECATED.get(self.name)) else ""
        )
        return " ".join([*self.schema["description"].split(), *removal.split()])

    @property
    def reloaded(self) -> bool:
        """Whether a running process reloads it at SIGHUP."""
        return bool(self.schema.get("reloaded"))

    @property
    def default(self) -> str | None:
        """The default as TOML, or None if the setting has none, or one that follows from another setting."""
        field = Settings.model_fields[self.name]
        if field.default is None or field.default_factory is not None:
            return None
        return toml(Settings.model_construct(**{self.name: field.default}).model_dump(mode="json")[self.name])

    @property
    def kind(self) -> str:
        """The type, the allowed values and the unit."""
        schema = next((one for one in self.schema.get("anyOf", ()) if one.get("type") != "null"), self.schema)
        if self.written is not None:
            return ", ".join([self.written.kind, *limits(schema, self.written.write)])
        if "enum" in schema:
            return " or ".join(f"`{one}`" for one in schema["enum"])
        words = {"integer": "whole number", "boolean": "`on` or `off`", "string": "text"}
        kind = words.get(schema.get("type", ""), schema.get("type", "text"))
        kind = "path of a file" if schema.get("format") in ("path", "file-path") else kind
        return ", ".join([kind, *limits(schema, plain)])

    @property
    def written(self) -> WrittenForm | None:
        """The written form of the value, if it has one."""
        return find_form(Settings.model_fields[self.name])


def limits(schema: dict[str, Any], write: Callable[[Any], str]) -> Iterator[str]:
    """The limits of a number, in words."""
    for key, words in (("exclusiveMinimum", "over"), ("minimum", "at least"), ("maximum", "at most")):
        if key in schema:
            yield f"{words} {write(schema[key])}"


def plain(number: float) -> str:
    """A number; a whole one without `.0`."""
    return str(int(number)) if number == int(number) else str(number)


def toml(value: Any) -> str:
    """A default as TOML. JSON has the same form for strings, numbers, booleans and lists of them."""
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
    """The text of docs/settings.md."""
    parts = [MARKDOWN_HEAD]
    for table in Settings.tables:
        parts.append(f"## {HEADINGS[table]}: `[{table}]`\n")
        parts += [write_setting(one) for one in found if one.table == table]
    return "\n".join(parts)


def write_setting(one: Setting) -> str:
    """A section of docs/settings.md: a heading that a link and a search can have, and no table of seven columns."""
    default = "not set by default" if one.default is None else f"default `{one.default}`"
    change = "a reload" if one.reloaded else "a restart"
    names = f"`{one.key}` in `[{one.table}]`, `{variable(one.name)}`, `{one.flag}`"
    return f"### `{one.name}`\n\n{one.sentence}\n\n{names}: {one.kind}; {default}; a change needs {change}.\n"


def write_toml(found: list[Setting]) -> str:
    """The text of config/doi-proxy.toml. Loaded unchanged, it gives the defaults."""
    parts = [TOML_HEAD]
    for table in Settings.tables:
        parts.append(f"[{table}]\n")
        for one in found:
            if one.table == table:
                default = '"…"  # not set' if one.default is None else one.default
                reload = "; reloaded at SIGHUP" if one.reloaded else ""
                about = f"# {one.sentence}\n# {variable(one.name)}: {one.kind.replace('`', '')}{reload}"
                parts.append(f"{about}\n#{one.key} = {default}\n")
    return "\n".join(parts)


def write_features(page: str) -> str:
    """The page of the architecture with the list of the features: the table after FEATURES."""
    before, mark, rest = page.partition(FEATURES)
    rows = [f"| {name} | {load_feature(name).summary} |" for name in NAMES]
    return before + mark + "\n".join(rows) + "\n" + rest[rest.index("\n## ") :]


def write_imports(page: str) -> str:
    """The page of the architecture with the drawing of the imports: the block after IMPORTS."""
    before, mark, rest = page.partition(IMPORTS)
    return before + mark + draw_imports() + "\n" + rest[rest.index("```") :]


def write_architecture(page: str) -> str:
    """The page of the architecture with what follows from the code."""
    return write_imports(write_features(page))


def generated() -> dict[Path, str]:
    """The generated files: path below the project's root, and content."""
    found = settings()
    return {
        Path("docs/settings.md"): write_markdown(found),
        Path("config/doi-proxy.toml"): write_toml(found),
        Path("docs/architecture.md"): write_architecture((ROOT / "docs/architecture.md").read_text(encoding="utf-8")),
    }


def main(arguments: list[str]) -> int:
    """Write the files, or with --check report those that differ."""
    different = 0
    for path, content in generated().items():
        if arguments == ["--check"]:
            if not (ROOT / path).exists() or (ROOT / path).read_text(encoding="utf-8") != content:
                print(f"{path} differs from the settings or the features: run docs/generate.py", file=sys.stderr)
                different = 1
        else:
            (ROOT / path).parent.mkdir(exist_ok=True)
            (ROOT / path).write_text(content, encoding="utf-8")
    return different


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
