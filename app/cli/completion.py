"""`doi-proxy completion`: what a shell can complete, written from the parser."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from app.cli.command_tree import Command

_BASH: Final = """\
# Completion of doi-proxy for bash: source it, or write it to /usr/share/bash-completion/completions/doi-proxy.
_doi_proxy() {{
    local command="" index
    local word="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD - 1]}}"
    for ((index = 1; index < COMP_CWORD; index++)); do
        case "$command ${{COMP_WORDS[index]}}" in
{commands}
        esac
    done
    case "$command $previous" in
{choices}
    esac
    case "$command" in
{words}
    esac
}}
# Without a match, bash completes file names.
complete -o default -F _doi_proxy doi-proxy
"""
_ZSH: Final = """\
#compdef doi-proxy
# Completion of doi-proxy for zsh: write it to a file _doi-proxy in a folder of $fpath.
_doi_proxy() {{
    local command="" word
    for word in "${{words[@]:1:CURRENT-2}}"; do
        case "$command $word" in
{commands}
        esac
    done
    case "$command ${{words[CURRENT-1]}}" in
{choices}
    esac
    case "$command" in
{words}
    esac
    _files
}}
_doi_proxy "$@"
"""


def write_bash(commands: Sequence[Command]) -> str:
    """A completion script for bash."""
    return _write(_BASH, commands, 'mapfile -t COMPREPLY < <(compgen -W "{}" -- "$word")', "return")


def write_zsh(commands: Sequence[Command]) -> str:
    """A completion script for zsh."""
    return _write(_ZSH, commands, "compadd -- {}", "_files; return")


def _write(frame: str, commands: Sequence[Command], offer: str, offer_files: str) -> str:
    """Fill the frame. `offer` offers words, `offer_files` file names."""
    known = [
        f'            "{" ".join(one.words[:-1])} {one.words[-1]}") command="{" ".join(one.words)}" ;;'
        for one in commands
        if one.words
    ]
    options = [(one, option, flag) for one in commands for option in one.options for flag in option.flags]
    choices = [
        f'        "{" ".join(one.words)} {flag}") {offer.format(" ".join(option.choices))}; return ;;'
        for one, option, flag in options
        if option.choices
    ]
    flags = dict.fromkeys(flag for _, option, flag in options if option.value and not option.choices)
    choices.append(f"        {'|'.join(f'*{chr(34)} {flag}{chr(34)}' for flag in flags)}) {offer_files} ;;")
    words = [f'        "{" ".join(one.words)}") {offer.format(" ".join(_offered(one)))} ;;' for one in commands]
    return frame.format(commands="\n".join(known), choices="\n".join(choices), words="\n".join(words))


def _offered(command: Command) -> list[str]:
    flags = [flag for option in command.options for flag in option.flags if flag.startswith("--")]
    return [*(name for name, _ in command.commands), *command.choices, *flags]


def write_fish(commands: Sequence[Command]) -> str:
    """A completion script for fish."""
    lines = ["# Completion of doi-proxy for fish: write it to ~/.config/fish/completions/doi-proxy.fish."]
    for one in commands:
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in one.words)
        below = " ".join(name for name, _ in one.commands)
        inside = f"{seen}; and not __fish_seen_subcommand_from {below}" if seen and below else seen
        here = f"-n '{inside or '__fish_use_subcommand'}'"
        lines += [f"complete -c doi-proxy {here} -f -a {name} -d {_quote(text)}" for name, text in one.commands]
        lines += [f"complete -c doi-proxy {here} -a '{' '.join(one.choices)}'"] if one.choices else []
        for option in one.options:
            flag = next(flag for flag in option.flags if flag.startswith("--"))
            value = f" -x -a '{' '.join(option.choices)}'" if option.choices else " -r" if option.value else ""
            about = f" -d {_quote(option.help)}" if option.help else ""
            lines.append(f"complete -c doi-proxy {here} -l {flag.removeprefix('--')}{value}{about}")
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    # fish knows only these two escapes in single quotes.
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


WRITERS: Final[Mapping[str, Callable[[Sequence[Command]], str]]] = {
    "bash": write_bash,
    "zsh": write_zsh,
    "fish": write_fish,
}
