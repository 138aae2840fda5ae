"""The command `doi-proxy`: parses the command line and runs a command. Every error is one line."""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from doi_proxy.commands.commands import GROUPS, KNOWN_COMMANDS, ParsedContext
from doi_proxy.errors import FAILURES, ConfigurationError, refuse_stripped_texts
from doi_proxy.system.files import open_null
from doi_proxy.system.version import read_version

if TYPE_CHECKING:
    from doi_proxy.features.feature import Command

#: The exit status for wrong arguments or settings.
WRONG_USE = 2
#: A message about a command or a value that is not known: of argparse, or of a list of values.
_INVALID_CHOICE: Final = re.compile(r"(?:invalid choice: )?'([^']*)' (?:\(choose from|is not one of) (.*)")


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line, without the usage text of sixty flags.

    The arguments of a command are added when it is parsed, because that imports its module and the settings.
    """

    fill: Callable[[], None] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """See ArgumentParser."""
        self.complete()
        namespace, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}{self._suggest_flag(str(rest[0]).partition('=')[0])}")
        return namespace, rest

    def complete(self) -> None:
        """Add the arguments, if that is not done yet."""
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill()

    def error(self, message: str) -> NoReturn:
        """See ArgumentParser."""
        if found := _INVALID_CHOICE.search(message):
            longer = [name for name in KNOWN_COMMANDS if name.endswith(f" {found[1]}") and "COMMAND" in message]
            message += _suggest(found[1], re.findall(r"[\w-]+", found[2])) or "".join(map(_ask, longer[:1]))
        message += self._list_required(message)
        self.exit(WRONG_USE, f"doi-proxy: {message}; see {self.prog} --help\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """See ArgumentParser, which ignores that the output cannot be written. `main` reports it."""
        if message and file is not None and file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)

    def _list_required(self, message: str) -> str:
        """The values of the arguments that a message says are required, for its end."""
        required = set(message.partition("arguments are required: ")[2].split(", "))
        lists = [action.choices for action in self._actions if required & {action.dest, str(action.metavar)}]
        return "".join(f" (one of {', '.join(choices)})" for choices in lists if choices)

    def _suggest_flag(self, word: str) -> str:
        """The flag of this command that was probably meant: one that its help shows, else that of a setting."""
        flags = self._option_string_actions
        shown = [flag for flag, action in flags.items() if action.help != argparse.SUPPRESS]
        # The flags of settings are taken by every command, and shown by few: they must be more similar.
        return _suggest(word, shown) or _suggest(word, flags, 0.85)


def _suggest(word: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    """The known word that was probably meant, for the end of a message."""
    return "".join(map(_ask, get_close_matches(word, list(known), n=1, cutoff=cutoff)))


def _ask(word: str) -> str:
    return f"; did you mean {word}?"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns its exit status: 0 success, 1 failure, 2 wrong arguments or settings."""
    _replace_closed_streams()
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except ConfigurationError as error:
        print(f"doi-proxy: {error.message}", file=sys.stderr)
        return WRONG_USE
    except FAILURES as error:
        print(f"doi-proxy: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if error.filename is not None:
            print(f"doi-proxy: {str(error.filename)[:200]}: {error.strerror}", file=sys.stderr)
            return 1
        # Errors of an output that takes no more: a full disk, a quota, a file of the largest size, a broken disk, a
        # pipe.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE):
            raise
        # The interpreter would write the rest at its end, and report the same error in its own words.
        os.dup2(open_null(), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 130
        print(f"doi-proxy: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1


def _replace_closed_streams() -> None:
    """Open /dev/null for each standard stream that was closed before the start. Python has None for it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(open_null(), mode, encoding="utf-8"))


def _run(arguments: Sequence[str] | None) -> int:
    refuse_stripped_texts()
    parser = create_parser()
    namespace = parser.parse_args(arguments)
    if not hasattr(namespace, "run"):
        parser.print_help()
        return WRONG_USE
    from doi_proxy.commands.imports import skip_httpx_command_line

    skip_httpx_command_line()
    return int(namespace.run(ParsedContext(namespace), namespace))


def create_parser(*, is_complete: bool = False) -> argparse.ArgumentParser:
    """The parser of all commands.

    `is_complete` adds the arguments of all of them: packaging/built_files.py writes the completion scripts and the man
    page from it.
    """
    parser = _Parser(prog="doi-proxy", description="A self-hosted resolver for DOI names.", allow_abbrev=False)
    parser.add_argument("--version", action=_PrintVersion, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    groups: dict[str, Any] = {"": commands}
    for name, (text, module) in KNOWN_COMMANDS.items():
        group, _, word = name.rpartition(" ")
        if group not in groups:
            help_text = GROUPS[group]
            command = commands.add_parser(group, help=help_text, description=help_text, allow_abbrev=False)
            groups[group] = command.add_subparsers(title="commands", metavar="COMMAND", required=True)
        command = groups[group].add_parser(word, help=text, description=text, allow_abbrev=False)
        command.fill = _filling(command, name, module)
        if is_complete:
            command.complete()
    return parser


def _filling(parser: _Parser, name: str, module: str) -> Callable[[], None]:
    def fill() -> None:
        # The settings that `serve --help` lists.
        listed = ("host", "port", "public_url", "store_url", "instances", "upstream_contact")
        parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file of settings")
        parser.add_argument("--help-settings", action=_HelpSettings, help="print the flags of all settings and exit")
        _add_setting_flags(parser, listed if name == "serve" else ())
        command: Command = next(candidate for candidate in import_module(module).COMMANDS if candidate.name == name)
        command.add_arguments(parser)
        parser.set_defaults(run=command.run)

    return fill


def _add_setting_flags(command: argparse.ArgumentParser, shown: Collection[str] | None = None) -> None:
    """Add the flags of all settings, of which the help has those `shown`, by default all."""
    from doi_proxy.assembly.settings import Settings
    from doi_proxy.system.options import DEPRECATED, flag_of, variable, write_default

    title, text = "settings", "each is also an environment variable and a line of the TOML file"
    group = command.add_argument_group(title, text) if shown is None or shown else command
    for name, field in Settings.model_fields.items():
        about = ", ".join(filter(None, (variable(name), write_default(field))))
        text = f"{field.description} [{about}]".replace("%", "%%")
        group.add_argument(
            flag_of(name),
            dest=name,
            metavar="VALUE",
            help=text if shown is None or name in shown else argparse.SUPPRESS,
        )
    for name in DEPRECATED:
        group.add_argument(flag_of(name), dest=name, metavar="VALUE", help=argparse.SUPPRESS)


class _PrintVersion(argparse.Action):
    """Prints the version, which is looked up only then."""

    def __init__(self, option_strings: Sequence[str], help: str, **_: object) -> None:  # noqa: A002 - argparse's name
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"doi-proxy {read_version()}")
        parser.exit()


class _HelpSettings(argparse.Action):
    """Prints the flags of the settings, which the short help leaves out."""

    def __init__(self, option_strings: Sequence[str], help: str, **_: object) -> None:  # noqa: A002 - argparse's name
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        flags = _Parser(parser.prog, f"{parser.prog} [settings]", add_help=False)
        _add_setting_flags(flags)
        flags.print_help()
        parser.exit()
