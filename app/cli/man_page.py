"""`doi-proxy man-page`: the man page doi-proxy(1), written from the parser and the settings (groff_man(7))."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app import __version__
from app.assembly.settings import Settings
from app.assembly.settings.sources import CONFIG_VARIABLE, flag_of, variable
from app.cli.command_tree import Command, Option


def write_man_page(commands: Sequence[Command]) -> str:
    """The whole page."""
    return "\n".join([*_head(), *_commands(commands), *_settings(), *_tail()]) + "\n"


def _head() -> Iterator[str]:
    yield f'.TH DOI-PROXY 1 "" "doi-proxy {__version__}" "User Commands"'
    yield from (".SH NAME", r"doi-proxy \- a self-hosted resolver for DOI names")
    yield from (".SH SYNOPSIS", ".B doi-proxy", r"\fICOMMAND\fR [\fIOPTIONS\fR]")


def _commands(commands: Sequence[Command]) -> Iterator[str]:
    yield ".SH COMMANDS"
    for one in commands:
        if not one.words or one.commands:
            continue
        arguments = " ".join(rf"\fI{_escape(name)}\fR" for name in one.arguments)
        yield f'.SS "doi-proxy {" ".join(one.words)}" {arguments}'.rstrip()
        yield _escape(one.help[:1].upper() + one.help[1:] + ".")
        for option in one.options:
            if not option.is_setting:
                yield from (".TP", _flags(option), _escape(option.help))


def _flags(option: Option) -> str:
    flags = ", ".join(rf"\fB{_escape(flag)}\fR" for flag in option.flags)
    value = "|".join(option.choices) or option.value
    return rf"{flags} \fI{_escape(value)}\fR" if value else flags


def _settings() -> Iterator[str]:
    yield ".SH SETTINGS"
    yield "Each setting is a flag, an environment variable, or a line of the TOML file that --config or"
    yield rf"\fB{CONFIG_VARIABLE}\fR names. The flag wins over the variable, and both win over the file."
    for name, field in Settings.model_fields.items():
        yield from (".TP", rf"\fB{_escape(flag_of(name))}\fR, \fB{variable(name)}\fR")
        default = "" if field.default in (None, "") else f" The default is {field.default}."
        yield _escape(f"{field.description}{default}")


def _tail() -> Iterator[str]:
    yield ".SH EXIT STATUS"
    yield "0 success; 1 failure; 2 wrong arguments, or settings that cannot be used."


def _escape(text: str) -> str:
    # A line that begins with a dot or a quote is a request (groff(7)).
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    escaped = "".join(one if one.isascii() else rf"\[u{ord(one):04X}]" for one in escaped)
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
