"""The command, run as people run it: exit status, one clear line, and a server that answers on its port."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

from app.assembly.settings import Settings
from app.system.version import read_version

pytestmark = pytest.mark.process

ROOT: Final = Path(__file__).parents[2]
COMMAND: Final = (sys.executable, "-m", "app")
NOWHERE: Final = "http://127.0.0.1:9"
#: Longer than a start on a busy machine takes, in seconds.
PATIENCE: Final = 60.0
#: A command that says more than this is a server that began to serve, and does not end by itself.
MAX_LINES: Final = 20


def environment(**settings: str) -> dict[str, str]:
    """The environment without the settings of the user who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DOI_PROXY_")}
    own = {"STORE_URL": "memory:", "UPSTREAM_URL": NOWHERE, "UPSTREAM_CONTACT": "mailto:library@example.org"}
    return {**kept, **{f"DOI_PROXY_{name}": value for name, value in own.items()}, **settings}


def run(*arguments: str, command: tuple[str, ...] = COMMAND, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env=environment(**settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_a_start_imports_nothing_that_only_other_commands_need() -> None:
    """A start that ends at a seed that does not exist."""
    code = """
from app.cli.main import main
main(['serve', '--store-url', 'memory:', '--seed', 'missing'])
import sys
from fastapi.openapi.models import OpenAPI
print(*{'httpx', 'rich', 'pygments', 'redis', 'lxml.html'} & set(sys.modules), OpenAPI.__pydantic_complete__)
"""
    assert run(code, command=(sys.executable, "-c")).stdout == "httpx False\n"


def test_a_python_without_docstrings_is_refused_in_one_line() -> None:
    ended = run("serve", command=(sys.executable, "-OO", "-m", "app"))
    said = "doi-proxy: python -OO (PYTHONOPTIMIZE=2) removes texts that this program needs; -O keeps them\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", said)


class TestVersion:
    def test_the_module_says_it(self) -> None:
        ended = run("--version")
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"doi-proxy {read_version()}\n", "")

    def test_the_installed_command_says_it(self) -> None:
        installed = Path(sysconfig.get_path("scripts"), "doi-proxy")
        if not installed.exists():
            pytest.skip("the project is not installed")
        ended = run("--version", command=(str(installed),))
        assert (ended.returncode, ended.stdout) == (0, f"doi-proxy {read_version()}\n")


# A start takes a second, nearly all of it imports. Commands that end by themselves are forked off one interpreter that
# has them done: processes of their own, with their own environment, output and exit status.

WARM: Final = """
import json, os, sys, traceback
import app.cli.serve
from app.cli.main import main
for line in sys.stdin:
    command = json.loads(line)
    child = os.fork()
    if not child:
        os.dup2(os.open(command["stdout"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
        os.dup2(os.open(command["stderr"], os.O_WRONLY), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(command["environment"])
        status = 1
        try:
            status = main(command["arguments"])
        except SystemExit as end:
            status = end.code
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Ended:
    """`status` is None for a command that would not end."""

    status: int | None
    stdout: str
    stderr: str


class Interpreter:
    """Runs commands, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._stdout, self._stderr = folder / "stdout", folder / "stderr"
        os.mkfifo(self._stderr)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WARM], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=PATIENCE)

    def run(self, *arguments: str, **settings: str) -> Ended:
        assert self._process.stdin is not None and self._process.stdout is not None
        command = {"arguments": arguments, "environment": environment(**settings)}
        command |= {"stdout": str(self._stdout), "stderr": str(self._stderr)}
        print(json.dumps(command), file=self._process.stdin, flush=True)
        child = int(self._process.stdout.readline())
        said, ends = "", True
        with self._stderr.open() as stderr:
            for number, line in enumerate(stderr):
                said += line
                if ends and (number > MAX_LINES or "startup complete" in line):
                    ends = False
                    os.kill(child, signal.SIGTERM)
        status = int(self._process.stdout.readline())
        return Ended(status if ends else None, self._stdout.read_text(), said)


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpreter]:
    with Interpreter(tmp_path_factory.mktemp("output")) as interpreter:
        yield interpreter


@dataclass(frozen=True)
class Wrong:
    """A command that ends with one line, in which `says` is found; what can pass by itself has status 1."""

    id: str
    arguments: str
    says: str
    settings: tuple[tuple[str, str], ...] = ()
    status: int = 2


WRONG: Final = [
    Wrong("unknown command", "nonsense", "nonsense"),
    Wrong("unknown flag", "serve --nope 1", "--nope"),
    Wrong("abbreviated flag", "config --upstream-u http://x.example", "--upstream-u"),
    Wrong("unknown environment", "config", "DOI_PROXY_NOPE: there is no such setting", (("DOI_PROXY_NOPE", "1"),)),
    Wrong(
        "unknown line of the file",
        "config --config {tmp}/unknown.toml",
        "unknown.toml, line 2: upstream_ulr: there is no such",
    ),
    Wrong("file that is no TOML", "config --config {tmp}/garbage.pem", "garbage.pem"),
    Wrong("file that is not there", "config --config {tmp}/missing.toml", "missing.toml"),
    Wrong("flag that is no number", "config --port abc", "--port: "),
    Wrong("environment that is no number", "config", "DOI_PROXY_PORT: ", (("DOI_PROXY_PORT", "abc"),)),
    Wrong("upstream of another scheme", "config --upstream-url ftp://x.example", "--upstream-url: "),
    Wrong("health check with an unknown setting", "check --ready", "DOI_PROXY_NOPE", (("DOI_PROXY_NOPE", "1"),)),
    Wrong("unknown setting", "serve", "DOI_PROXY_NOPE: there is no such setting", (("DOI_PROXY_NOPE", "1"),)),
    Wrong("port in use", "serve --port {used}", "port {used}", status=1),
    Wrong("command with a slip", "reslove 10.1000/182", "did you mean resolve?"),
    Wrong("last word of a command", "purge", "did you mean cache purge?"),
    Wrong("kind that is missing", "gen-config", "kind (one of nginx, apache, caddy, systemd)"),
    Wrong("command that is missing", "cache", "COMMAND (one of export, import, "),
    Wrong("list that is missing", "cache warm", "are required: LIST; see"),
    Wrong("flag with a slip", "serve --prot 1", "did you mean --port?"),
    Wrong("flag of the command itself", "resolve --sugest 10.1000/182", "did you mean --suggest?"),
    Wrong("flag like none of the command", "resolve --wait 5 10.1000/182", "arguments: --wait; see"),
    Wrong("setting with a slip", "resolve --stor-url x 10.1000/182", "did you mean --store-url?"),
    Wrong("verdict with a slip", "resolve --again unverifed {tmp}/missing", "did you mean unverified?"),
    Wrong("store without a path", "serve --port 0 --store-url sqlite:///", "no file path"),
    Wrong("export without a store", "cache export --store-url sqlite:///{tmp}/garbage.pem/x", "garbage.pem"),
    Wrong("store of another kind", "serve --port 0 --store-url mongodb://x", "mongodb"),
    Wrong("seed that is not there", "serve --port 0 --seed {tmp}/missing.ndjson", "missing.ndjson"),
    Wrong("certificate without its key", "serve --port 0 --tls-cert {tmp}/garbage.pem", "--tls-key"),
    Wrong(
        "certificate that is none",
        "serve --port 0 --tls-cert {tmp}/garbage.pem --tls-key {tmp}/garbage.pem",
        "garbage.pem",
    ),
    Wrong(
        "certificate that is not there",
        "serve --port 0 --tls-cert {tmp}/missing.pem --tls-key {tmp}/missing.pem",
        "missing.pem",
    ),
    Wrong("address of another machine", "serve --port 0 --host 192.0.2.1", "192.0.2.1", status=1),
    Wrong("no address", "serve --port 0 --host=", "--host"),
    Wrong("upstream without a host", "serve --port 0 --upstream-url http://:80", "http://:80"),
    Wrong("upstream with half a host", "serve --port 0 --upstream-url http://[bad", "http://[bad"),
    Wrong("public URL with half a host", "serve --port 0 --public-url http://[bad", "http://[bad"),
    Wrong("country database that is not there", "serve --port 0 --country-database {tmp}/missing.mmdb", "missing.mmdb"),
    Wrong("contact that is not ASCII", "serve --port 0 --upstream-contact mailto:ü@example.org", "contact"),
    Wrong(
        "workers with such a database",
        "serve --port 0 --workers 2 --store-url sqlite:///{tmp}/shared.sqlite3 --country-database {tmp}/missing.mmdb",
        "missing.mmdb",
    ),
    Wrong("workers without a shared store", "serve --port 0 --workers 2 --store-url memory:", "share"),
]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the braces in the table stand for."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "unknown.toml").write_text("[upstream]\nulr = 'http://x.example'\n")
    (folder / "garbage.pem").write_text("neither a certificate nor TOML\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield {"tmp": str(folder), "used": str(taken.getsockname()[1])}


@pytest.mark.parametrize("wrong", WRONG, ids=[one.id for one in WRONG])
def test_what_cannot_be_done_is_told_in_one_line_with_its_exit_status(
    interpreter: Interpreter, words: dict[str, str], wrong: Wrong
) -> None:
    ended = interpreter.run(*(word.format_map(words) for word in wrong.arguments.split()), **dict(wrong.settings))
    assert "Traceback" not in ended.stderr
    assert ended.status == wrong.status
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert ended.stderr.startswith("doi-proxy: ")
    assert wrong.says.format_map(words) in ended.stderr
    assert ended.stdout == ""


# What answers.


@dataclass(frozen=True)
class Answer:
    """An answer over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes


class Server:
    """A proxy that runs."""

    def __init__(self, scheme: str, host: str, port: int, context: ssl.SSLContext | None = None) -> None:
        self.scheme = scheme
        self.host = host
        self.port = port
        self._context = context

    def ask(self, target: str, method: str = "GET", **headers: str) -> Answer:
        if self._context is None:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        else:
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=PATIENCE, context=self._context)
        try:
            connection.request(method, target, headers=headers)
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def exchange(self, request: bytes, *, ends: bool = False) -> bytes:
        """The beginning of what comes back for these bytes; with `ends`, nothing more is sent ever."""
        answer = b""
        with socket.create_connection((self.host, self.port), timeout=PATIENCE) as connection:
            try:
                connection.sendall(request)
                if ends:
                    connection.shutdown(socket.SHUT_WR)
                while b"\r\n\r\n" not in answer and (piece := connection.recv(65_536)):
                    answer += piece
            except OSError:  # closed at the other end, in one of several ways
                pass
        return answer


@contextmanager
def serving(*arguments: str, context: ssl.SSLContext | None = None, **settings: str) -> Iterator[Server]:
    """Start a proxy on a free port; stop it as a service manager does, and expect it to go in peace."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", *arguments],
        cwd=ROOT,
        env=environment(**settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        try:
            said = ""
            while "startup complete" not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
            found = re.search(r"starting on (https?)://(\[[0-9a-f:]+\]|[0-9.]+):([0-9]+)", said)
            assert found, said
            _wait_for(found[2].strip("[]"), int(found[3]))
            yield Server(found[1], found[2].strip("[]"), int(found[3]), context)
        finally:
            process.send_signal(signal.SIGTERM)
            _, rest = process.communicate(timeout=PATIENCE)
        assert "Traceback" not in said + rest and "ERROR" not in said + rest
        assert process.returncode in (0, -signal.SIGTERM)


def _wait_for(host: str, port: int) -> None:
    """Return when the server listens, a moment after its start is complete."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            socket.create_connection((host, port), timeout=PATIENCE).close()
            return
        except ConnectionRefusedError:
            continue
    raise AssertionError(f"no server listens on {host} port {port}")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """What `make run` starts on a machine without network."""
    with serving("--seed", "config/seed.ndjson") as server:
        yield server


class TestWithoutUpstream:
    def test_a_seeded_name_redirects_and_says_that_it_is_stale(self, server: Server) -> None:
        answer = server.ask("/10.1000/182")
        assert (answer.status, answer.headers["location"]) == (302, "http://www.doi.org/hb.html")
        assert re.fullmatch(r"doi-proxy; hit; ttl=-[0-9]+; detail=[a-z-]+", answer.headers["cache-status"])

    def test_its_record_is_there(self, server: Server) -> None:
        answer = server.ask("/api/handles/10.1000/182")
        assert answer.status == 200
        assert answer.body.startswith(b'{"responseCode":1,"handle":"10.1000/182","values":[{"index":1,"type":"URL",')

    def test_another_name_could_not_be_verified(self, server: Server) -> None:
        assert server.ask("/10.5555/unknown").status == 502

    def test_it_is_ready(self, server: Server) -> None:
        assert (server.ask("/healthz").status, server.ask("/readyz").status) == (200, 200)
        ended = run("check", "--ready", "--port", str(server.port))
        assert (ended.returncode, ended.stderr) == (0, "")


class TestOverTheWire:
    @pytest.mark.parametrize("path", ["/10.1000/182", "/api/handles/10.1000/182", "/", "/healthz", "/docs", "/foo"])
    def test_head_sends_no_body(self, server: Server, path: str) -> None:
        answer = server.exchange(b"HEAD %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path.encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 ") and body == b""

    @pytest.mark.parametrize(
        ("line", "status"),
        [
            (b"GET /10.1000%2F182 HTTP/1.1", 302),
            (b"GET http://doi.example.org/10.1000/182 HTTP/1.1", 302),
            (b"GET //10.1000/182 HTTP/1.1", 302),
            (b"GET /10.1000/182#fragment HTTP/1.1", 302),
            (b"GET /10.1000/x/../182 HTTP/1.1", 502),
            (b"GET /10.1000/182 HTTP/1.0", 302),
            (b"OPTIONS * HTTP/1.1", 204),
            (b"GET /https://doi.org/10.1000/182 HTTP/1.1", 302),
        ],
        ids=repr,
    )
    def test_a_target_of_any_form_arrives_as_it_was_sent(self, server: Server, line: bytes, status: int) -> None:
        answer = server.exchange(line + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert answer.split(b" ")[1] == str(status).encode()

    @pytest.mark.parametrize(
        "request_bytes",
        [
            b"GET /%ZZ HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /10.5555/%FF HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /10.5555/\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /10.5555/\xff HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /10.5555/a b HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /10.5555/x%0d%0aSet-Cookie:%20a=b HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /10.5555/x\r\nSet-Cookie: a=b HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            b"Content-Length: 99999999\r\n\r\nhdl=" + b"a" * 300_000,
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"\r\n\r\n\r\n",
            b"",
        ],
        ids=lambda request: repr(request)[2:44],
    )
    def test_a_broken_request_gets_a_4xx_or_nothing_and_affects_no_other(
        self, server: Server, request_bytes: bytes
    ) -> None:
        answer = server.exchange(request_bytes, ends=True)
        head = answer.partition(b"\r\n\r\n")[0]
        assert not answer or re.match(rb"HTTP/1\.[01] (?:4[0-9]{2}|200) ", answer), head
        assert b"set-cookie" not in head.lower()
        assert server.ask("/10.1000/182").status == 302

    def test_no_server_software_is_named(self, server: Server) -> None:
        assert "server" not in server.ask("/").headers


def test_it_serves_over_ipv6() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("this machine has no IPv6")
    with serving("--host", "::1") as server:
        assert (server.host, server.ask("/healthz").status) == ("::1", 200)


def test_it_serves_https_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes a certificate, is not installed: apt-get install openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = (
        f"{openssl} req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -days 1 -subj /CN=localhost "
        f"-addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}"
    )
    subprocess.run(made.split(), check=True, capture_output=True)
    context = ssl.create_default_context(cafile=str(certificate))
    with serving("--tls-cert", str(certificate), "--tls-key", str(key), context=context) as server:
        assert (server.scheme, server.ask("/healthz").status) == ("https", 200)
        ended = run(
            "check", "--ready", "--port", str(server.port), "--tls-cert", str(certificate), "--tls-key", str(key)
        )
        assert ended.returncode == 0


def test_without_a_server_the_health_check_fails_with_one_line(interpreter: Interpreter) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    ended = interpreter.run("check", "--ready", "--port", str(port))
    assert (ended.status, len(ended.stderr.splitlines())) == (1, 1)
    assert ended.stderr.startswith("doi-proxy: ")


@pytest.mark.parametrize(
    ("given", "secret"),
    [
        ("redis://:geheim@host.example/0", "geheim"),
        ("rediss://user:geheim@host.example:6380/0", "geheim"),
        # All up to the last "@" is the password: so do the libraries read it.
        ("redis://user:ge@heim@host.example/0", "heim"),
        ("redis://geheim@host.example/0", "geheim"),
        ("redis://host.example/0?password=geheim", "geheim"),
        ("redis://host.example/0?a=b&p%61ssword=ge@heim&db=1", "heim"),
    ],
)
def test_the_settings_in_force_are_shown_with_passwords_masked(
    interpreter: Interpreter, given: str, secret: str
) -> None:
    ended = interpreter.run("config", "--port", "1234", DOI_PROXY_STORE_URL=given)
    shown = dict(line.split("=", 1) for line in ended.stdout.splitlines())
    assert ended.status == 0
    assert (shown["DOI_PROXY_PORT"], shown["DOI_PROXY_RESOLVE"]) == ("1234", "doi")
    assert secret not in ended.stdout and "host.example" in shown["DOI_PROXY_STORE_URL"]


def test_the_settings_shown_can_be_given_back(interpreter: Interpreter) -> None:
    shown = interpreter.run("config", DOI_PROXY_UPSTREAM_RATE="3").stdout
    assert "DOI_PROXY_UPSTREAM_RATE=3" in shown.splitlines()
    given = dict(line.split("=", 1) for line in shown.splitlines() if not line.startswith("#"))
    assert "#DOI_PROXY_PUBLIC_URL=" in shown.splitlines()
    assert interpreter.run("config", **given).stdout == shown


def test_a_value_from_a_file_of_secrets_is_not_shown(interpreter: Interpreter, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("geheim")
    shown = interpreter.run("config", DOI_PROXY_BRANDING_NAME_FILE=str(secret)).stdout
    assert "DOI_PROXY_BRANDING_NAME=***" in shown.splitlines()


def test_an_error_about_a_setting_shows_no_password(interpreter: Interpreter) -> None:
    for given in ("https://user:geheim@/", "ftp://user:geheim@host.example/"):
        ended = interpreter.run("config", DOI_PROXY_UPSTREAM_URL=given)
        assert ended.status == 2 and "geheim" not in ended.stderr


def test_help_names_every_command_and_every_setting(interpreter: Interpreter) -> None:
    commands = interpreter.run("--help")
    assert commands.status == 0
    assert {"serve", "config", "check"} <= set(re.findall(r"[a-z]+", commands.stdout))
    short = interpreter.run("serve", "--help").stdout
    assert "--help-settings" in short and "--upstream-rate" not in short
    options = interpreter.run("serve", "--help-settings").stdout
    assert not [name for name in Settings.model_fields if f"--{name.replace('_', '-')} " not in options]
