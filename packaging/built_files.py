"""The version, and the completion scripts and the man page from the parser, written when an archive is built.

Usage without a build: built_files.py FOLDER. The FOLDER then has share/ as an environment has it after an installation.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: The file of each shell, in the folder from which the shell loads it.
COMPLETION: Final = {
    "bash": "share/bash-completion/completions/doi-proxy",
    "zsh": "share/zsh/site-functions/_doi-proxy",
    "fish": "share/fish/vendor_completions.d/doi-proxy.fish",
}
MAN_PAGE: Final = "share/man/man1/doi-proxy.1"
#: Values with these names are files.
FILES: Final = ("FILE", "LIST")


#: The file that app/doi_proxy/system/version.py reads. A source archive has it.
VERSION_FILE: Final = "app/doi_proxy/system/built_version.txt"
#: Where app/doi_proxy/features/setup/installation.py finds the pages of the manual in a wheel.
MANUAL: Final = "doi_proxy/features/setup/docs"


class BuiltFiles(BuildHookInterface):
    """Adds the files. To build a wheel, the dependencies of the program are needed, because it imports the parser."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the files, except for an editable installation."""
        if version == "editable":
            return
        self.folder = tempfile.TemporaryDirectory()
        if not Path(self.root, VERSION_FILE).exists():
            built = Path(self.folder.name, Path(VERSION_FILE).name)
            built.write_text(self.metadata.version, encoding="ascii")
            build_data["force_include"][str(built)] = VERSION_FILE
        if self.target_name == "sdist":
            return
        build_data["force_include"] |= {
            str(page): f"{MANUAL}/{page.name}" for page in Path(self.root, "docs").glob("*.md")
        }
        names = write_files(Path(self.folder.name), self.metadata.version)
        build_data["shared_data"] |= {f"{self.folder.name}/{name}": name for name in names}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the files, which the wheel has now."""
        if version != "editable":
            self.folder.cleanup()


def write_files(folder: Path, version: str) -> list[str]:
    """Write all files below the folder, and return their names."""
    import shtab

    sys.dont_write_bytecode = True
    sys.path.insert(0, str(Path(__file__).parents[1] / "app"))
    from doi_proxy.assembly.settings import Settings
    from doi_proxy.commands.main import create_parser

    texts = {MAN_PAGE: write_man_page(create_parser(is_complete=True), Settings.model_fields, version)}
    parser = create_parser(is_complete=True)
    complete_settings(parser, Settings.model_fields)
    texts |= {name: shtab.complete(parser, shell) for shell, name in COMPLETION.items()}
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return list(texts)


def all_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser, and those of all commands. argparse has no public way to list them."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from all_parsers(command)


def complete_settings(parser: argparse.ArgumentParser, settings: dict[str, Any]) -> None:
    """Show the flags of the settings, which `--help` leaves out, and mark the values that are files."""
    import shtab

    for action in (action for command in all_parsers(parser) for action in command._actions):
        if action.help == argparse.SUPPRESS and action.dest in settings:
            action.help = settings[action.dest].description.partition(". ")[0].replace("%", "%%")
        if action.metavar in FILES:
            action.complete = shtab.FILE


def write_man_page(parser: argparse.ArgumentParser, settings: dict[str, Any], version: str) -> str:
    """The page doi-proxy(1), with a section for all settings."""
    from argparse_manpage.manpage import Manpage

    for command in all_parsers(parser):
        # A line that argparse breaks could begin with a dot, as a request of groff does. man breaks the lines itself.
        command.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=10_000)
        # The page has the help of a command, which is the same text.
        command.description = None
    about = {"project_name": "doi-proxy", "version": version, "manual_title": "User Commands"}
    page = Manpage(parser, about, format="single-commands-section")
    page.description = "a self-hosted resolver for DOI names"
    page.add_section("settings", "=", "\n".join(describe_settings(settings)))
    page.add_section("exit status", "=", "0 success; 1 failure; 2 wrong arguments, or settings that cannot be used.")
    return str(page)


def describe_settings(settings: dict[str, Any]) -> Iterator[str]:
    """The lines about the settings (groff_man(7))."""
    from doi_proxy.system.options import CONFIG_VARIABLE, flag_of, variable

    yield "Each setting is a flag, an environment variable, or a line of the TOML file that --config or"
    yield rf"\fB{CONFIG_VARIABLE}\fR names. The flag wins over the variable, and both win over the file."
    for name, field in settings.items():
        default = "" if field.default in (None, "") else f" The default is {field.default}."
        text = f"{field.description}{default}".replace("\\", r"\e").replace("-", r"\-")
        yield from (".TP", rf"\fB{flag_of(name)}\fR, \fB{variable(name)}\fR".replace("-", r"\-"), rf"\&{text}")


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
