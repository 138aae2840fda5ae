"""`doi-proxy serve` and `doi-proxy config`."""

from __future__ import annotations

import argparse
from typing import Final

from doi_proxy.features.command import Command, CommandContext, add_nothing


def _serve(context: CommandContext, _: argparse.Namespace) -> int:
    from doi_proxy.commands import imports

    imports.skip_pydantic_v1()
    imports.skip_pydantic_plugins()
    with imports.collect_nothing():
        imports.import_aiohttp()
        imports.defer_openapi_models()
        # The web framework takes half a second to import, and no other command needs it.
        from doi_proxy.commands.serve import serve

    return serve(context.load)


def _add_config(command: argparse.ArgumentParser) -> None:
    command.add_argument("--sources", action="store_true", help="print where each setting was set, as a comment")
    command.add_argument(
        "--format", dest="form", choices=("env", "toml"), default="env", help="environment variables, or a TOML file"
    )


def _config(context: CommandContext, namespace: argparse.Namespace) -> int:
    from doi_proxy.assembly.settings import build
    from doi_proxy.commands.show import show_settings

    return show_settings(build(context.values), context.values, namespace.form, sources=namespace.sources)


COMMANDS: Final = (Command("serve", add_nothing, _serve), Command("config", _add_config, _config))
