"""The command `doi-proxy`: what is asked for on the command line, and one clear line where it cannot be done."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from app import __version__
from app.cli.cache import add_cache_commands, run_cache
from app.cli.worker import skip_httpx_command_line
from app.errors import ConfigurationError, DoiProxyError
from app.settings import Settings, load, names_from_files, variable

#: The exit status of a program that was called, or configured, wrongly.
WRONG_USE = 2


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage of sixty flags."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USE, f"doi-proxy: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0 done, 1 failed, 2 called or configured wrongly."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if not hasattr(chosen, "run"):
        parser.print_help()
        return WRONG_USE
    skip_httpx_command_line()
    try:
        return int(chosen.run(chosen))
    except ConfigurationError as error:
        print(f"doi-proxy: {error.message}", file=sys.stderr)
        return WRONG_USE
    except DoiProxyError as error:
        print(f"doi-proxy: {error.message}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, BrokenPipeError):
        return 130


def settings_of(chosen: argparse.Namespace) -> Settings:
    """The settings of a command: its flags over environment and file. Raises ConfigurationError."""
    flags = {name: getattr(chosen, name, None) for name in Settings.model_fields}
    return load(flags, config=chosen.config)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="doi-proxy", description="A self-hosted resolver for DOI names.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"doi-proxy {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_command(commands, "serve", _serve, "answer requests over HTTP")
    _add_command(commands, "config", _config, "print the settings in force, secrets masked")
    _add_command(commands, "healthcheck", _healthcheck, "ask a running proxy whether it is ready; exit status 0 if so")
    text = "export, import, warm, count or purge what the store holds"
    cache = commands.add_parser("cache", help=text, description=text, allow_abbrev=False)
    cache.set_defaults(run=_cache)
    add_cache_commands(cache, _add_settings)
    return parser


def _add_command(commands: argparse._SubParsersAction, name: str, run: object, text: str) -> argparse.ArgumentParser:  # type: ignore[type-arg]
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    command.set_defaults(run=run)
    _add_settings(command)
    return command


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", type=Path, metavar="FILE", help="TOML file of settings")
    group = command.add_argument_group("settings", "each is also an environment variable and a line of the TOML file")
    for name, field in Settings.model_fields.items():
        text = f"{field.description} [{variable(name)}, default {field.default}]"
        group.add_argument("--" + name.replace("_", "-"), dest=name, metavar="VALUE", help=text.replace("%", "%%"))


def _serve(chosen: argparse.Namespace) -> int:
    from app.cli.serve import serve  # the web framework takes half a second to import; other commands need none

    return serve(lambda: settings_of(chosen))


def _config(chosen: argparse.Namespace) -> int:
    from app.cli.show import show_settings

    return show_settings(settings_of(chosen), names_from_files(os.environ))


def _healthcheck(chosen: argparse.Namespace) -> int:
    from app.cli.healthcheck import healthcheck

    return healthcheck(settings_of(chosen))


def _cache(chosen: argparse.Namespace) -> int:
    return run_cache(chosen, settings_of(chosen))
