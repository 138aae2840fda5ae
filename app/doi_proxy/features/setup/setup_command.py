"""`doi-proxy setup`: asks questions, writes the files of an installation, and examines it."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from doi_proxy.errors import ConfigurationError, DoiProxyError
from doi_proxy.features.feature import CommandContext, set_usage
from doi_proxy.features.setup.front_files import FRONTS, read_front, write_front
from doi_proxy.features.setup.installation import (
    CONFIG,
    INSTANCES,
    PlannedFile,
    add_networks,
    change_settings,
    find_program,
    read_existing,
    read_shipped,
    usual_instances,
    write_alerts,
    write_planned,
    write_units,
)
from doi_proxy.system.files import replace_private
from doi_proxy.system.options import CONFIG_VARIABLE, Settings, flag_of, require_networks

#: The settings that the questions are about.
_QUESTIONS: Final = {
    "branding_name": "Name of the service, for its pages",
    "public_url": "Public address, such as https://doi.example.org",
    "upstream_contact": "Contact for the upstream, such as library@example.org",
    "store_url": "Store: a file (sqlite:////PATH), or the Valkey server of several machines (valkey://...)",
    "instances": "Instances that share this service, on all machines",
}
#: A host, with a port and a path: an address whose scheme people leave out.
_HOST: Final = re.compile(r"[\w-]+(\.[\w-]+)+(:\d+)?(/[^?#\s]*)?")
_NO_FRONT: Final = "none"
_UNITS: Final = Path("systemd/system")
#: The line of the environment file of the unit.
_INSTANCES: Final = re.compile(r"^DOI_PROXY_INSTANCES=([0-9]+)$", re.MULTILINE)
_MONITOR: Final = Path("/etc/prometheus")
_RELOAD: Final = "systemctl reload 'doi-proxy@*'"
#: The program of each front proxy, its file, and what makes it read the file.
_FRONT_FILES: Final = {
    "nginx": ("nginx", "/etc/nginx/conf.d/doi-proxy.conf", "nginx -t && systemctl reload nginx"),
    "apache": (
        "apache2",
        "/etc/apache2/sites-available/doi-proxy.conf",
        "a2enmod proxy_http proxy_balancer lbmethod_byrequests headers ssl && a2ensite doi-proxy && "
        "systemctl restart apache2",
    ),
    "caddy": ("caddy", "/etc/caddy/Caddyfile", "systemctl reload caddy"),
}


def add_setup_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `doi-proxy setup`. Each question has a flag: that of its setting, or one of these."""
    flags = " ".join(f"[{flag_of(name)} VALUE]" for name in _QUESTIONS)
    set_usage(command, f"{flags} [--front NAME] [--shared-address NETWORK] [--yes]")
    command.add_argument("--front", choices=(*FRONTS, _NO_FRONT), help="front proxy whose configuration is written")
    command.add_argument(
        "--shared-address",
        dest="shared",
        action="append",
        metavar="NETWORK",
        help="address or network of many readers, which client_rate does not limit; repeat it for several",
    )
    command.add_argument("--certificate", default="", metavar="FILE", help="certificate chain of the front proxy")
    command.add_argument("--certificate-key", default="", metavar="FILE", help="key of this certificate")
    command.add_argument("--root", type=Path, default=Path("/"), metavar="FOLDER", help="write below this folder")
    command.add_argument("--yes", action="store_true", help="ask nothing, and replace files that differ")


def setup(context: CommandContext, namespace: argparse.Namespace) -> int:
    """Ask, write, examine, and print what is left. Exit status 0, 1 with a file that was not written or an error.

    Raises ConfigurationError.
    """
    root = namespace.root
    config = namespace.config or Path(os.environ.get(CONFIG_VARIABLE) or CONFIG)
    before = read_existing(_below(root, config))
    with tempfile.TemporaryDirectory() as folder:
        # The settings that the answers would give, read as a service reads them.
        draft = namespace.config = Path(folder) / config.name
        _write_draft(draft, before or read_shipped("systemd/doi-proxy.toml"))
        present = _INSTANCES.search(read_existing(_below(root, INSTANCES)) or "")
        usual = int(present[1]) if present else usual_instances()
        values = _ask(context, namespace, usual)
        # They are in a file of the unit: the settings file may be the same on machines with different numbers.
        instances = values.pop("instances", usual)
        text = change_settings(context.load(), read_existing(draft) or "", values)
        for name in _QUESTIONS:
            setattr(namespace, name, None)
        _write_draft(draft, text)
        settings = context.load()
        namespace.config = config
        planned = list(_plan(settings, namespace, config, text, before, instances))
    written = _write(planned, is_sure=namespace.yes)
    steps = [planned_file.step for planned_file in written if planned_file.step]
    if root == Path("/"):
        steps += _examine(context, namespace)
    print("\n".join(("What is left:", *list_commands(steps))) if steps else "Nothing is left.")
    return 0 if len(written) == sum(planned_file.differs for planned_file in planned) else 1


def list_commands(steps: list[str]) -> Iterator[str]:
    """The lines of the steps, each step once. A shell can run them: what no command does is a comment."""
    # A restart reads the lists of networks too.
    is_restarted = any("systemctl restart doi-proxy.target" in step for step in steps)
    for step in dict.fromkeys(steps):
        if step != _RELOAD or not is_restarted:
            yield from (f"  {line}" for line in step.splitlines())


def _below(root: Path, path: Path) -> Path:
    return root / path.absolute().relative_to("/")


def _write_draft(draft: Path, text: str) -> None:
    replace_private(draft, text.encode())


# --- The questions ----------------------------------------------------------------------------------------------------


def _ask(context: CommandContext, namespace: argparse.Namespace, instances: int) -> dict[str, Any]:
    """The settings that an answer or a flag gives. An answer is read again until it can be used.

    `instances` is what Enter keeps.
    """
    settings = context.load()
    is_terminal = sys.stdin.isatty() and not namespace.yes
    given = {name for name in _QUESTIONS if getattr(namespace, name) is not None}
    if is_terminal:
        for name in (question for question in _QUESTIONS if question not in given):
            default = instances if name == "instances" else settings.value(name)
            if _ask_setting(context, namespace, name, default):
                given.add(name)
    if namespace.front is None:
        found = next((kind for kind, (program, _, _) in _FRONT_FILES.items() if shutil.which(program)), _NO_FRONT)
        namespace.front = _ask_front(found) if is_terminal else found
    if namespace.shared is None:
        namespace.shared = _ask_addresses() if is_terminal else []
    _check_addresses(namespace.shared)
    if namespace.store_url is not None:
        _check_store(context)
    answered = context.load()
    return {name: answered.value(name) for name in given}


def _ask_setting(context: CommandContext, namespace: argparse.Namespace, name: str, default: object) -> bool:
    """Ask for a setting until its value can be used. Returns whether there is an answer."""
    while True:
        answer = _complete(name, _read_line(_QUESTIONS[name], "" if default is None else str(default)))
        setattr(namespace, name, answer or None)
        try:
            context.load()
            if name == "store_url" and answer:
                _check_store(context)
        except ConfigurationError as error:
            # The operator did not type the flag of this setting.
            print(error.message.removeprefix(f"{flag_of(name)}: "))
        else:
            return bool(answer)


def _complete(name: str, answer: str) -> str:
    """The answer, or on request what people mean by a host without a scheme."""
    if name != "public_url" or not _HOST.fullmatch(answer):
        return answer
    meant = f"https://{answer}"
    return meant if _confirms(f"Do you mean {meant}?", "y") else answer


def _check_store(context: CommandContext) -> None:
    """Refuse a store URL of the answers that no start can use. No server is contacted. Raises ConfigurationError."""
    for finding in context.inspect((), offline=True):
        if finding.severity == "error" and finding.source == flag_of("store_url"):
            raise ConfigurationError(str(finding))


def _ask_front(default: str) -> str:
    question = f"Front proxy: {', '.join(FRONTS)} or none"
    while (answer := _read_line(question, default) or default) not in (*FRONTS, _NO_FRONT):
        print(f"{answer[:80]!r} is not one of them")
    return answer


def _ask_addresses() -> list[str]:
    while True:
        line = _read_line("Addresses that many readers share (campus NAT, EZproxy), or Enter", "")
        addresses = line.replace(",", " ").split()
        try:
            _check_addresses(addresses)
        except ConfigurationError as error:
            print(error.message)
        else:
            return addresses


def _check_addresses(addresses: list[str]) -> None:
    try:
        require_networks(addresses)
    except ValueError as error:
        raise ConfigurationError(f"--shared-address: {error}") from error


def _confirms(question: str, default: str) -> bool:
    return (_read_line(f"{question} y or n", default) or default).lower() in ("y", "yes")


def _read_line(question: str, default: str) -> str:
    try:
        return input(f"{question} [{default}]: " if default else f"{question}: ").strip()
    except EOFError:
        raise KeyboardInterrupt from None


# --- The files --------------------------------------------------------------------------------------------------------


def _plan(
    settings: Settings, namespace: argparse.Namespace, config: Path, text: str, before: str | None, instances: int
) -> Iterator[PlannedFile]:
    """The files of an installation with these settings. Raises ConfigurationError."""

    def plan(path: Path, text: str, step: str = "") -> PlannedFile:
        return PlannedFile(_below(namespace.root, path), text, read_existing(_below(namespace.root, path)), step)

    here = min(instances, usual_instances())
    enabled = " ".join(("doi-proxy.target", "doi-proxy.socket", *(f"doi-proxy@{n}" for n in range(1, here + 1))))
    restart = f"systemctl daemon-reload && systemctl enable {enabled} && systemctl restart doi-proxy.target"
    yield PlannedFile(_below(namespace.root, config), text, before, restart, is_private=True)
    # The lists of networks: the setting, the file as shipped, and the answer with the networks that are added to it.
    lists = (("client_allow_file", "systemd/allow.txt", "shared"), ("client_deny_file", "systemd/deny.txt", ""))
    for setting, shipped, added in lists:
        path = settings.value(setting)
        if path is not None:
            present = read_existing(_below(namespace.root, path)) or read_shipped(shipped)
            yield plan(path, add_networks(present, getattr(namespace, added, ())), _RELOAD)
    yield plan(INSTANCES, f"DOI_PROXY_INSTANCES={instances}\n", restart)
    for name, unit in write_units(settings, config, find_program()).items():
        # A unit in /etc would win over that of the package for ever.
        if unit != read_existing(_below(namespace.root, Path("/usr/lib") / _UNITS / name)):
            yield plan(Path("/etc") / _UNITS / name, unit, restart)
    if namespace.front != _NO_FRONT:
        yield plan(*_plan_front(settings, namespace))
    monitor = _MONITOR if _below(namespace.root, _MONITOR).is_dir() else config.parent
    path = monitor / "doi-proxy-alerts.yml"
    step = f"# name {path} in rule_files of your Prometheus, and reload it"
    yield plan(path, write_alerts(settings.public_url), step)


def _plan_front(settings: Settings, namespace: argparse.Namespace) -> tuple[Path, str, str]:
    """The path and the text of the front proxy's file, and what has to be done then."""
    front = read_front(
        settings, backends=(), certificate=namespace.certificate, key=namespace.certificate_key, cached=False
    )
    _, path, step = _FRONT_FILES[namespace.front]
    # Caddy gets its certificate itself.
    needed = front.certificate_paths if "https" in front.ports and namespace.front != "caddy" else ()
    missing = [
        certificate_file for certificate_file in needed if not _below(namespace.root, Path(certificate_file)).exists()
    ]
    first = f"# write the certificate chain and its key to {' and '.join(missing)}, then:\n" if missing else ""
    return Path(path), write_front(namespace.front, front), first + step


def _write(planned: list[PlannedFile], *, is_sure: bool) -> list[PlannedFile]:
    """Write new files, and those that differ after a look at the difference. Returns what was written."""
    written = []
    for planned_file in planned:
        if not planned_file.differs:
            print(f"unchanged: {planned_file.path}")
        elif planned_file.before is None:
            write_planned(planned_file)
            print(f"new: {planned_file.path}")
            written.append(planned_file)
        else:
            print("\n".join(planned_file.show_difference()))
            if is_sure or (sys.stdin.isatty() and _confirms(f"Replace {planned_file.path}?", "n")):
                write_planned(planned_file)
                print(f"replaced: {planned_file.path}; it is now {planned_file.path.name}.before")
                written.append(planned_file)
            else:
                print(f"kept: {planned_file.path}; --yes replaces it")
    return written


def _examine(context: CommandContext, namespace: argparse.Namespace) -> Iterator[str]:
    """Run `check` and `doctor`. What they need of an operator."""
    from doi_proxy.features.setup.check_command import check_settings
    from doi_proxy.features.setup.doctor_command import doctor

    print("\ndoi-proxy check:")
    if check_settings(context, offline=False, as_json=False):
        yield f"doi-proxy check --config {shlex.quote(str(namespace.config))}"
    if context.settings.public_url is None:
        yield f"# set the public address: doi-proxy setup {flag_of('public_url')} URL"
        return
    print("\ndoi-proxy doctor:")
    front = None if namespace.front == _NO_FRONT else namespace.front
    probe = argparse.Namespace(url=None, front=front, upstream=False, insecure=False, format="text")
    try:
        status = doctor(context, probe)
    except DoiProxyError as error:
        print(error.message)
        status = 1
    if status:
        yield f"doi-proxy doctor --config {shlex.quote(str(namespace.config))}"
