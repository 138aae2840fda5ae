"""`doi-proxy doctor`: examines the front proxy by probes that go through it, or the upstreams by queries."""

from __future__ import annotations

import argparse
import time

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.feature import CommandContext, add_format


def add_doctor_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `doi-proxy doctor`."""
    command.add_argument("--url", metavar="URL", help="address of the front proxy (default: public_url)")
    # The front proxies for which doi_proxy.features.setup.doctor has remedies.
    command.add_argument(
        "--front",
        choices=("nginx", "apache", "caddy", "haproxy"),
        help="front proxy (default: as its Server header says)",
    )
    command.add_argument(
        "--upstream", action="store_true", help="query each upstream instead, handle servers by each transport"
    )
    command.add_argument("--insecure", action="store_true", help="accept any certificate of the front proxy")
    add_format(command)


def doctor(context: CommandContext, namespace: argparse.Namespace) -> int:
    """Print what is wrong with the front proxy, or with the upstreams.

    Exit status 2 with an error, else 0. Raises ProxyFailure if the front proxy does not answer.
    """
    from doi_proxy.features.setup.check_command import show_findings

    as_json = namespace.format == "json"
    if namespace.upstream:
        return show_findings(context.examine_upstreams(), as_json=as_json)
    from doi_proxy.features.setup.doctor import Prober, examine, examine_without_key
    from doi_proxy.features.setup.probe import TOKEN_SECONDS, sign_token
    from doi_proxy.proxy_client import parse_server

    settings = context.settings
    url = namespace.url or settings.public_url
    if not url:
        raise ConfigurationError("--url: there is no address to probe; give the address of the front proxy")
    key = settings.value("admin_token")
    token = "" if key is None else sign_token(key, int(time.time()) + TOKEN_SECONDS // 2)
    run = examine_without_key if key is None else examine
    server = parse_server(url, "--url", verifies=not namespace.insecure)
    if server.socket_path is not None:
        raise ConfigurationError(
            f"--url {url}: a front proxy has no socket; give its URL, such as https://doi.example.org"
        )
    examination = run(Prober(server, token), namespace.front)
    if not as_json:
        print(f"{url}: {examination.front or 'front proxy of an unknown kind'}")
    return show_findings(examination.findings, as_json=as_json)
