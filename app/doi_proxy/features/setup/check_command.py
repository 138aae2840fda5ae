"""`doi-proxy check`: examines settings, files, store and upstream, and compares a running proxy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal, TypedDict

from doi_proxy.errors import DoiProxyError
from doi_proxy.features.feature import CommandContext
from doi_proxy.features.setup import checks
from doi_proxy.proxy_client import open_client
from doi_proxy.server.tls import find_certificate_problems
from doi_proxy.system.check import Check, Finding, exit_status, find_deprecated
from doi_proxy.system.files import print_json, printable
from doi_proxy.system.options import MASK, redact_value, write_value

#: What is checked besides the parts of the core and the features. A new check is one more line here.
CHECKS: Final[tuple[Check, ...]] = (
    checks.find_ineffective,
    find_deprecated,
    checks.find_contradictions,
    checks.find_refused_routes,
    checks.find_risks,
    checks.find_machine_limits,
    checks.find_unreadable_files,
    checks.find_authority_problems,
    find_certificate_problems,
    checks.find_store_folder_problems,
    checks.find_port_in_use,
    checks.find_management_problems,
)


def check_settings(context: CommandContext, *, offline: bool, as_json: bool) -> int:
    """Print every finding. Exit status 2 with an error, 1 with a warning, else 0."""
    return show_findings(context.inspect(CHECKS, offline=offline), as_json=as_json)


def show_findings(findings: Sequence[Finding], *, as_json: bool) -> int:
    """Print findings as lines, or as one JSON object. Returns the exit status."""
    status = exit_status(findings)
    if as_json:
        print_json({"status": status, "findings": [asdict(finding) for finding in findings]})
        return status
    for finding in sorted(findings, key=lambda finding: ("error", "warning", "note").index(finding.severity)):
        print(printable(f"{finding.severity}: {finding}"))
    print(("No errors and no warnings.", "There are warnings.", "There are errors.")[status])
    return status


class ShownSetting(TypedDict):
    """The value of a setting, None without one, and where it was set."""

    value: str | None
    source: str


def describe_settings(context: CommandContext) -> Mapping[str, ShownSetting]:
    """Each setting by its name. Raises ConfigurationError."""
    settings, values, shown = context.settings, context.values, dict[str, ShownSetting]()
    for name, value in settings.model_dump(mode="json").items():
        sourced = values.get(name)
        is_secret = value is not None and (settings.is_secret(name) or (sourced is not None and sourced.secret))
        text = None if value is None else MASK if is_secret else write_value(redact_value(value))
        shown[name] = ShownSetting(value=text, source="default" if sourced is None else sourced.source)
    return shown


Step = Literal["reload", "restart"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that the running proxy has with another value than this command."""

    setting: str
    #: The value in force, and the one of this command's file, environment and flags. None without a value.
    running: str | None
    new: str | None
    source: str
    step: Step


def compare_running(context: CommandContext, server: str | None, *, as_json: bool) -> int:
    """Print the differences. Exit status 1 with one, else 0. Raises ConfigurationError and DoiProxyError."""
    client = open_client(context.settings, server)
    running, here = client.settings(), describe_settings(context)
    if here.keys().isdisjoint(running):
        raise DoiProxyError(f"{client.label}: its answer has no setting of this release; check the URL")
    reloadable, found = context.settings.reloadable(), list[Difference]()
    # A setting that only one of the two releases has is left out, as a secret is.
    for name, setting in here.items():
        value = running.get(name, setting["value"])
        is_masked = MASK in str(value) and MASK in str(setting["value"])
        # The unit gives them to each instance, and a command does not have them.
        if value != setting["value"] and not is_masked and name not in ("instance", "instances", "management_listen"):
            step: Step = "reload" if name in reloadable else "restart"
            shown = None if value is None else str(value)
            found.append(Difference(name, shown, setting["value"], setting["source"], step))
    if as_json:
        print_json({"server": client.label, "differences": [asdict(each) for each in found]})
    else:
        print("\n".join(_describe(found, client.label)))
    return 1 if found else 0


def _describe(found: list[Difference], label: str) -> Iterator[str]:
    for step, head in (
        ("reload", "a reload would change (systemctl reload 'doi-proxy@*'):"),
        ("restart", "a restart would change (doi-proxy-restart):"),
    ):
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
