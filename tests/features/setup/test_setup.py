"""`doi-proxy setup`: its questions in a terminal, its flags, and each file that it writes in its real program."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.assembly.settings import Settings, load
from doi_proxy.commands.main import main
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.setup.installation import add_networks, change_settings, usual_instances
from tests.cluster.front_proxy import program
from tests.cluster.processes import ROOT, Proxy, until
from tests.cluster.raw_http import ask
from tests.features.setup.generated_front import GeneratedFront

FLAGS: Final = ("--branding-name=Example Library", "--upstream-contact=mailto:library@example.org")
ADDRESS: Final = "--public-url=https://127.0.0.1"
#: Seconds for an answer of the command in a terminal.
DEADLINE: Final = 60
SETTINGS: Final = "etc/doi-proxy/doi-proxy.toml"
FRONTS: Final = {
    "nginx": "etc/nginx/conf.d/doi-proxy.conf",
    "apache": "etc/apache2/sites-available/doi-proxy.conf",
    "caddy": "etc/caddy/Caddyfile",
}


def files_below(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_the_flags_write_every_file_and_a_second_run_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["setup", f"--root={tmp_path}", "--front=nginx", "--shared-address=192.0.2.0/24", ADDRESS, *FLAGS]
    assert main(command) == 0
    printed = capsys.readouterr().out
    left = [line.strip() for line in printed.partition("What is left:\n")[2].splitlines()]
    # A restart reads the lists too, so no reload follows it. What no command does is a comment.
    assert [line.partition(" ")[0] for line in left] == ["systemctl", "#", "nginx", "#"]
    assert "systemctl restart doi-proxy.target" in left[0] and "/etc/ssl/127.0.0.1/fullchain.pem" in left[1]
    written = files_below(tmp_path)
    settings = load({}, {}, tmp_path / SETTINGS)
    assert (settings.public_url, settings.value("branding_name")) == ("https://127.0.0.1", "Example Library")
    assert settings.value("client_rate") == 50
    assert written["etc/doi-proxy/allow.txt"].splitlines()[-3:] == ["127.0.0.0/8", "::1", "192.0.2.0/24"]
    assert written["etc/doi-proxy/deny.txt"] == (Path(__file__).parents[3] / "config/systemd/deny.txt").read_text()
    assert written["etc/doi-proxy/instances"] == f"DOI_PROXY_INSTANCES={usual_instances()}\n"
    assert "systemctl enable doi-proxy.target doi-proxy.socket doi-proxy@1" in printed
    assert (tmp_path / SETTINGS).stat().st_mode & 0o777 == 0o640
    assert main(command) == 0
    assert "Nothing is left." in capsys.readouterr().out
    assert files_below(tmp_path) == written
    assert main([*command, "--shared-address=198.51.100.7", "--yes"]) == 0
    assert "What is left:\n  systemctl reload 'doi-proxy@*'\n" in capsys.readouterr().out


def test_a_file_that_exists_is_shown_and_kept_without_yes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / SETTINGS
    path.parent.mkdir(parents=True)
    before = '# ours\n[server]\nport = 8123 # behind nginx\n[admin]\ntoken = "an-old-admin-token-1"\n'
    path.write_text(before)
    command = ["setup", f"--root={tmp_path}", "--front=none", "--store-url=valkey://:hidden@cache.example.org/0"]
    assert main(command) == 1
    printed = capsys.readouterr().out
    assert path.read_text() == before
    assert '+url = "valkey://***@cache.example.org/0"' in printed
    assert "hidden" not in printed and "an-old-admin-token" not in printed
    assert main([*command, "--yes"]) == 0
    assert path.read_text() == before + '\n[store]\nurl = "valkey://:hidden@cache.example.org/0"\n'
    assert path.with_name("doi-proxy.toml.before").read_text() == before


def test_a_link_in_the_place_of_the_kept_file_is_replaced(tmp_path: Path) -> None:
    path, victim = tmp_path / SETTINGS, tmp_path / "victim"
    path.parent.mkdir(parents=True)
    path.write_text("# ours\n")
    victim.write_text("of another user")
    kept = path.with_name("doi-proxy.toml.before")
    kept.symlink_to(victim)
    assert main(["setup", f"--root={tmp_path}", "--yes", "--front=none", ADDRESS]) == 0
    assert not kept.is_symlink() and kept.read_text() == "# ours\n"
    assert victim.read_text() == "of another user"


@pytest.mark.parametrize("url", ["/var/lib/doi-proxy/store.sqlite3", "cache.example.org:6379", "valkey://h:99999/0"])
def test_a_store_that_no_start_can_use_is_refused_before_a_file_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    assert main(["setup", f"--root={tmp_path}", "--yes", "--front=none", ADDRESS, f"--store-url={url}"]) == 2
    assert "--store-url: " in capsys.readouterr().err
    assert files_below(tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("", '\n\n[upstream]\ncontact = "mailto:x@y"\n'),
        ('[upstream]\n#contact = "a"\n[store]\n', '[upstream]\ncontact = "mailto:x@y"\n[store]\n'),
        ("[upstream] # ours\nrate = 5\n", '[upstream] # ours\ncontact = "mailto:x@y"\nrate = 5\n'),
        ('[upstream]\n# contact = 1\ncontact="b"\n', '[upstream]\n# contact = 1\ncontact = "mailto:x@y"\n'),
        ('[client]\ncontact_of = 1\n[upstream]\n', '[client]\ncontact_of = 1\n[upstream]\ncontact = "mailto:x@y"\n'),
    ],
)  # fmt: skip
def test_a_setting_is_changed_in_its_table(text: str, changed: str) -> None:
    assert change_settings(Settings(), text, {"upstream_contact": "mailto:x@y"}) == changed


@pytest.mark.parametrize("text", ['[upstream]\ncontact = """\nb"""\n', 'upstream.contact = "b"\n'])
def test_a_form_that_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="upstream_contact"):
        change_settings(Settings(), text, {"upstream_contact": "mailto:x@y"})


def test_a_network_is_added_once() -> None:
    assert add_networks("::1\n10.0.0.0/8 # NAT", ["10.0.0.0/8", "192.0.2.7", "192.0.2.7"]).splitlines()[2:] == [
        "192.0.2.7"
    ]


@pytest.mark.process
def test_questions_in_a_terminal_are_repeated_until_their_answers_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "etc/doi-proxy").mkdir(parents=True)
    shutil.copy(ROOT / "config/systemd/doi-proxy.toml", tmp_path / SETTINGS)
    answers = [
        ("Name of the service", "Example Library"),
        ("Public address", "doi example"),
        ("Public address", "doi.example.org"),
        ("Do you mean https://doi.example.org", "no"),
        ("Public address", "doi.example.org"),
        ("Do you mean https://doi.example.org", ""),
        ("Contact", "library@x"),
        ("Store", "cache.example.org:6379"),
        ("Store", f"sqlite:///{tmp_path}/new.sqlite3"),
        ("Instances", "none"),
        ("Instances", "6"),
        ("Front proxy", "varnish"),
        ("Front proxy", "caddy"),
        ("Addresses", "campus"),
        ("Addresses", "192.0.2.7, 2001:db8::/64"),
        ("Replace", "y"),
    ]
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "doi_proxy", "setup", "--root", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DOI_PROXY_")}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = everything = ""
        for question, answer in answers:
            shown = read_until(ours, f"{question}[^\n]*: $")
            os.write(ours, f"{answer}\n".encode())
            everything += shown
        rest = read_until(ours, "What is left:(.|\n)*rule_files")
        assert process.wait(DEADLINE) == 0
    os.close(ours)
    assert "this is not a URL" in everything and "--public-url" not in everything
    assert '+public_url = "https://doi.example.org"' in shown
    assert "systemctl reload caddy" in rest
    settings = load({}, {}, tmp_path / SETTINGS)
    assert (settings.public_url, settings.upstream_contact) == ("https://doi.example.org", "mailto:library@x")
    assert (tmp_path / "etc/doi-proxy/instances").read_text() == "DOI_PROXY_INSTANCES=6\n"
    assert settings.store_url == f"sqlite:///{tmp_path}/new.sqlite3"
    assert "2001:db8::/64" in (tmp_path / "etc/doi-proxy/allow.txt").read_text()


def read_until(terminal: int, pattern: str) -> str:
    """What a program writes to its terminal until the pattern is there."""
    text = ""
    while not re.search(pattern, text):
        assert select.select([terminal], [], [], DEADLINE)[0], text
        text += os.read(terminal, 65_536).decode("utf-8", "replace").replace("\r", "")
    return text


def install(root: Path, kind: str) -> str:
    """Write every file, and check those that have a program for it. Returns that of the front proxy."""
    assert main(["setup", f"--root={root}", f"--front={kind}", ADDRESS, *FLAGS]) == 0
    subprocess.run([program("promtool"), "check", "rules", root / "etc/doi-proxy/doi-proxy-alerts.yml"], check=True)
    units = root / "etc/systemd/system"
    service = units / "doi-proxy@.service"
    service.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", service.read_text()))
    subprocess.run([program("systemd-analyze"), "verify", *units.iterdir()], check=True)
    return (root / FRONTS[kind]).read_text()


@pytest.mark.process
@pytest.mark.anyio
@pytest.mark.parametrize("kind", FRONTS)
async def test_every_file_is_accepted_by_its_program_and_a_request_passes(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    text = install(root, kind)
    lists = {f"client_{name}_file": root / f"etc/doi-proxy/{name}.txt" for name in ("allow", "deny")}
    places = {**lists, "config": root / SETTINGS}
    async with Proxy(tmp_path, "http://127.0.0.1:9", "memory:", mode="sealed", **places) as proxy:
        text = text.replace("127.0.0.1:8000", f"127.0.0.1:{proxy.port}")
        async with GeneratedFront(tmp_path / "front", kind, [], write=lambda _: text) as front:

            async def passes() -> bool:
                # Caddy signs its certificate itself, which takes a while.
                try:
                    found = await ask(front.tls_port, "/healthz", tls=ssl._create_unverified_context())
                except OSError:
                    return False
                return found.body == b'{"status":"ok"}'

            await until(passes, DEADLINE, "a request passes")
