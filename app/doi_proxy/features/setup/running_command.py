"""`doi-proxy check --running`: what a reload and what a restart of the running proxy would change."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from doi_proxy.errors import DoiProxyError
from doi_proxy.features.command import CommandContext
from doi_proxy.features.setup.sizing import ShownSetting, describe_settings
from doi_proxy.proxy_client.exchange import open_client
from doi_proxy.system.files import print_json
from doi_proxy.system.options import MASK

Step = Literal["reload", "restart"]

_HEADS: Final[Mapping[Step, str]] = {
    "reload": "a reload would change (systemctl reload doi-proxy.target):",
    "restart": "a restart would change (doi-proxy-restart):",
}
#: The unit gives them to each instance, and a command does not have them.
_OF_THE_UNIT: Final = ("instance", "instances", "management_listen")


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that the running proxy has with another value than this command."""

    setting: str
    #: The value in force, and the one of this command's file, environment and flags. None without a value.
    running: str | None
    new: str | None
    source: str
    step: Step


def find_differences(
    running: Mapping[str, Any], here: Mapping[str, ShownSetting], reloadable: Collection[str]
) -> Iterator[Difference]:
    """The settings that differ. A setting that only one of the two releases has is left out, as a secret is."""
    for name, setting in here.items():
        value = running.get(name, setting["value"])
        is_masked = MASK in str(value) and MASK in str(setting["value"])
        if value != setting["value"] and not is_masked and name not in _OF_THE_UNIT:
            step: Step = "reload" if name in reloadable else "restart"
            shown = None if value is None else str(value)
            yield Difference(name, shown, setting["value"], setting["source"], step)


def compare_running(context: CommandContext, server: str | None, *, as_json: bool) -> int:
    """Print the differences. Exit status 1 with one, else 0. Raises ConfigurationError and DoiProxyError."""
    client = open_client(context.settings, server)
    running, here = client.settings(), describe_settings(context)
    if here.keys().isdisjoint(running):
        raise DoiProxyError(f"{client.label}: its answer has no setting of this release; check the URL")
    found = [*find_differences(running, here, context.settings.reloadable())]
    if as_json:
        print_json({"server": client.label, "differences": [asdict(each) for each in found]})
    else:
        print("\n".join(_describe(found, client.label)))
    return 1 if found else 0


def _describe(found: list[Difference], label: str) -> Iterator[str]:
    for step, head in _HEADS.items():
        changes = [each for each in found if each.step == step]
        if changes:
            yield head
        for each in changes:
            yield f"  {each.setting}: {_show(each.running)} -> {_show(each.new)} ({each.source})"
    if not found:
        yield f"{label} runs with these settings."
    yield "Secrets are not compared. A reload also reads again the files that settings name."


def _show(value: str | None) -> str:
    # The longest part of a value that is shown.
    return "not set" if value is None else repr(value[:200])
