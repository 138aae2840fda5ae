"""The address of a proxy: what is one, and that each command reports another text in one line."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.commands.main import main
from doi_proxy.errors import ConfigurationError
from doi_proxy.proxy_client import may_read, open_client, parse_server, server_on_this_machine
from tests.table import table

#: Texts that are not the address of a proxy.
BAD: Final = (
    "http://127.0.0.1:99999",
    "http://127.0.0.1:0",
    "http://127.0.0.1:http",
    "http://[::1",
    "http://",
    "http://:8000",
    "http://a..b",
    f"http://{'a' * 64}.example",
    "http://exa mple",
    "http://example.org/a\r\nHost: x",
    "http://bücher.example",
    "http://example.org/?query",
    "http://example.org/#fragment",
    "ftp://example.org",
    "example.org:8000",
    "unix:",
    "",
)


@table("text", BAD)
def test_another_text_is_refused_with_the_name_of_its_option(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^--server .*: not a URL such as") as caught:
        parse_server(text, "--server")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("http://proxy.example", ("proxy.example", None, False, "", None)),
        ("HTTP://Proxy.Example:8000/", ("proxy.example", 8000, False, "", None)),
        ("https://[2001:db8::1]:8443/doi/", ("2001:db8::1", 8443, True, "/doi", None)),
        ("unix:/run/admin.sock", ("localhost", None, False, "", "/run/admin.sock")),
    ],
)
def test_an_address_has_its_parts(text: str, parts: tuple[object, ...]) -> None:
    server = parse_server(text, "--server")
    assert (server.host, server.port, server.is_tls, server.path, server.socket_path) == parts
    assert server.label == text


@pytest.mark.parametrize(
    ("text", "netloc"),
    [
        ("http://[::1]:8000", "[::1]:8000"),
        ("http://proxy.example:80", "proxy.example"),
        ("https://proxy.example:443", "proxy.example"),
        ("https://proxy.example:80", "proxy.example:80"),
    ],
)
def test_the_host_of_a_request_has_no_port_of_its_scheme(text: str, netloc: str) -> None:
    assert parse_server(text, "--server").netloc == netloc


def test_a_user_and_a_password_are_sent_and_not_shown() -> None:
    server = parse_server("https://user:p%40ss@proxy.example/", "--server")
    assert (server.label, server.url) == ("https://***@proxy.example/", "https://proxy.example")
    assert server.credentials == "Basic dXNlcjpwQHNz"
    with pytest.raises(ConfigurationError) as caught:
        parse_server("ftp://user:secret@proxy.example", "--server")
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(("bound", "host"), [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("127.0.0.2", "127.0.0.2")])
def test_the_proxy_on_this_machine_is_reached_where_it_listens(bound: str, host: str) -> None:
    server = server_on_this_machine(bound, 8000, is_tls=True)
    assert (server.host, server.port, server.is_tls, server.verifies) == (host, 8000, True, False)


@pytest.mark.parametrize(
    "command",
    [
        ("status", "--server"),
        ("cache", "show", "10.1000/182", "--server"),
        ("cache", "refresh", "10.1000/182", "--server"),
        ("cache", "purge", "--all", "--server"),
        ("resolve", "LIST", "--server"),
        ("doctor", "--url"),
        ("mcp", "--server"),
    ],
)
def test_each_command_reports_a_bad_url_in_one_line(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("LIST").write_text("10.1000/182\n")
    status, shown = main([*command, "http://127.0.0.1:99999"]), capsys.readouterr()
    assert (status, shown.err.count("\n"), "not a URL" in shown.err) == (2, 1, True)


@pytest.mark.parametrize(
    ("variable", "command"),
    [
        ("DOI_PROXY_PUBLIC_URL", "doctor"),
        ("DOI_PROXY_ADMIN_LISTEN", "status"),
        ("DOI_PROXY_UPSTREAM_URL", "status"),
    ],
)
@pytest.mark.parametrize("host", ["127.0.0.1:99999", "[::1"])
def test_a_bad_url_in_the_environment_is_one_line(
    variable: str, command: str, host: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, host if variable.endswith("LISTEN") else f"http://{host}")
    monkeypatch.setenv("DOI_PROXY_ADMIN_TOKEN", "correct-horse-battery-staple")
    status, shown = main([command]), capsys.readouterr()
    assert (status, shown.err.count("\n"), variable in shown.err or "listen" in shown.err) == (2, 1, True)


def test_a_command_finds_the_socket_of_an_instance_that_a_unit_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("doi_proxy.proxy_client.UNITS", tmp_path)
    assert not may_read(Settings())
    (tmp_path / "0.sock").write_text("no socket")
    for name in ("2", "1"):
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"{tmp_path}/{name}.sock")
    assert may_read(Settings()) and not may_read(Settings(management_listen=["127.0.0.1:8101"]))
    assert open_client(Settings(), None).label.endswith(f"{tmp_path}/1.sock")
