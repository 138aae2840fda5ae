"""The Debian package, built by `make deb`, is installed in a test root with dpkg and serves from there.

Not shown: what the maintainer scripts do under a running systemd.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from doi_proxy.system.version import VERSION, read_version
from tests.ports import free_port
from tests.test_tutorial import commands, outputs, script, search_path
from tools import clean_root
from tools.release.build import build, build_debian, read_commit

ROOT: Final = Path(__file__).resolve().parents[1]
DEBIAN: Final = ROOT / "packaging/debian"
#: Python of the Debian release, which runs the package.
PYTHON: Final = Path("/usr/bin/python3")
PROGRAMS: Final = ("dpkg-deb", "make", "setpriv", "systemctl", "systemd-sysusers", "systemd-tmpfiles")
#: For one command, in seconds: the end of one that hangs. The slowest installs all locked packages and compiles them.
DEADLINE: Final = 1_200
SCRIPTS: Final = ("build.sh", "postinst", "prerm", "postrm")

pytestmark = [pytest.mark.nightly, pytest.mark.repository]


def missing() -> str | None:
    """What this machine lacks, if anything. dpkg changes owners in the test root, so it needs root."""
    if os.geteuid() != 0:
        return "not root"
    programs = (program for program in PROGRAMS if shutil.which(program) is None)
    return next(programs, None if PYTHON.exists() else str(PYTHON))


needs_debian = pytest.mark.skipif(missing() is not None, reason=f"there is no Debian to install on: {missing()}")


def run(*command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env={**plain_environment(), **variables},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def plain_environment() -> dict[str, str]:
    """This process's environment without settings and without what steers Python."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("DOI_PROXY_", "PYTHON", "COV"))}


class Installed(NamedTuple):
    """A test root with the package, and the user of the service there."""

    root: Path
    user: int
    group: int

    @property
    def settings(self) -> Path:
        return self.root / "etc/doi-proxy/doi-proxy.toml"

    def command(self, *arguments: str, user: int | None = None) -> list[str]:
        """A command of the installed program, by default as the user of the service."""
        number = self.user if user is None else user
        group = self.group if user is None else user
        identity = ["setpriv", f"--reuid={number}", f"--regid={group}", "--clear-groups"]
        return [*identity, str(self.root / "opt/doi-proxy/bin/doi-proxy"), *arguments, "--config", str(self.settings)]


def build_package(folder: Path) -> Path:
    """Build the package of this checkout in an empty folder."""
    run("make", "--no-print-directory", "deb", f"DEB_FOLDER={folder}")
    (built,) = folder.glob("*.deb")
    return built


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_package(tmp_path_factory.mktemp("deb"))


@pytest.fixture(scope="module")
def installed(package: Path) -> Iterator[Installed]:
    """The package in a folder that other users can enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="doi-proxy-root-") as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "etc").mkdir()
        (root / "var/lib/dpkg/info").mkdir(parents=True)
        (root / "var/lib/dpkg/updates").mkdir()
        (root / "var/lib/dpkg/status").touch()
        dpkg(root, "--install", package)
        user, group = re.findall(r"^doi-proxy:x:(\d+):(\d+):", (root / "etc/passwd").read_text(), re.MULTILINE)[0]
        yield Installed(root, int(user), int(group))


def dpkg(root: Path, *arguments: str | Path) -> None:
    # The test root has no shell for the scripts and no other package.
    run("dpkg", f"--root={root}", "--force-script-chrootless", "--force-depends", *arguments)


@contextmanager
def serving(installed: Installed) -> Iterator[int]:
    """The port of the service, which runs as its user with its settings file."""
    kept = installed.settings.read_text()
    text = kept.replace("sqlite:////", f"sqlite:///{installed.root}/").replace('"/etc/', f'"{installed.root}/etc/')
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        upstream = f'url = "http://127.0.0.1:{closed.getsockname()[1]}"'
        installed.settings.write_text(text.replace("[upstream]", f"[upstream]\n{upstream}"))
        port = free_port()
        command = installed.command("serve", "--port", str(port))
        with subprocess.Popen(command, cwd="/", env=plain_environment(), stderr=subprocess.PIPE) as process:
            try:
                wait_until_ready(port, process)
                yield port
            finally:
                process.terminate()
                installed.settings.write_text(kept)


def wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        if process.poll() is not None and process.stderr is not None:
            raise AssertionError(f"the service has ended: {process.stderr.read().decode()}")
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=DEADLINE):
            return
    raise AssertionError(f"the service does not answer on port {port}")


@needs_debian
def test_the_package_says_what_it_needs_and_which_file_is_the_operator_s(package: Path) -> None:
    version = run(PYTHON, "-c", "import sys; print('%d.%d %d' % (*sys.version_info[:2], sys.version_info[1] + 1))")
    release, following = version.split()
    fields = dict(line.split(": ", 1) for line in run("dpkg-deb", "--field", package).splitlines() if ": " in line)
    assert fields["Version"] == read_version().replace(".dev", "~dev") + "-1"
    assert f"python3 (>= {release}), python3 (<< 3.{following})" in fields["Depends"]
    assert run("dpkg-deb", "--info", package, "conffiles").split() == [
        "/etc/doi-proxy/doi-proxy.toml",
        "/etc/doi-proxy/allow.txt",
        "/etc/doi-proxy/deny.txt",
    ]


@needs_debian
def test_the_installed_package_has_its_user_its_folders_and_enabled_units(installed: Installed) -> None:
    root = installed.root
    settings, store = (root / "etc/doi-proxy").stat(), (root / "var/lib/doi-proxy").stat()
    assert (settings.st_uid, settings.st_gid, settings.st_mode & 0o777) == (0, installed.group, 0o750)
    assert (store.st_uid, store.st_gid, store.st_mode & 0o777) == (installed.user, installed.group, 0o750)
    assert enabled_units(root) == {"doi-proxy.target", "doi-proxy.socket", *instances()}
    assert (root / "etc/doi-proxy/instances").read_text() == f"DOI_PROXY_INSTANCES={len(instances())}\n"
    for unit in ("doi-proxy@.service", "doi-proxy.socket", "doi-proxy.target"):
        assert (root / "usr/lib/systemd/system" / unit).read_bytes() == (ROOT / "config/systemd" / unit).read_bytes()
    assert os.access(root / "usr/sbin/doi-proxy-restart", os.X_OK)
    assert (root / "usr/bin/doi-proxy").readlink() == Path("/opt/doi-proxy/bin/doi-proxy")
    completion = ["bash-completion/completions/doi-proxy", "zsh/vendor-completions/_doi-proxy"]
    texts = [*completion, "fish/vendor_completions.d/doi-proxy.fish", "man/man1/doi-proxy.1.gz"]
    assert [name for name in texts if not (root / "usr/share" / name).is_file()] == []


def instances() -> list[str]:
    """The units that the package enables on this machine."""
    return [f"doi-proxy@{number}.service" for number in range(1, min(len(os.sched_getaffinity(0)), 4) + 1)]


def enabled_units(root: Path) -> set[str]:
    return {link.name for link in (root / "etc/systemd/system").glob("*.wants/doi-proxy*")}


@needs_debian
def test_the_installed_service_answers_and_its_user_can_use_the_cache_commands_beside_it(installed: Installed) -> None:
    bundle = installed.root / "var/lib/doi-proxy/records.ndjson.gz"
    with serving(installed):
        run(
            *installed.command(
                "cache", "import", "--no-checksum", str(installed.root / "usr/share/doi-proxy/seed.ndjson")
            )
        )
        assert '"healthy": true' in run(*installed.command("cache", "show"))
        run(*installed.command("cache", "export", "--output", str(bundle)))
        run(*installed.command("cache", "purge", "--all"))
    owners = {path.name: path.stat().st_uid for path in bundle.parent.iterdir()}
    assert set(owners.values()) == {installed.user}, owners


@needs_debian
def test_another_user_gets_one_line_instead_of_the_store(installed: Installed) -> None:
    store = f"sqlite:///{installed.root}/var/lib/doi-proxy/doi-proxy.sqlite3"
    command = installed.command("cache", "show", user=installed.user + 1)
    # Nor can this user read the settings.
    command[-2:] = ["--store-url", store]
    done = subprocess.run(
        command, cwd="/", env=plain_environment(), capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 2
    assert done.stderr.endswith("cannot be opened: Permission denied; run the command as the user of the service\n")
    assert done.stderr.count("\n") == 1


@needs_debian
def test_an_upgrade_from_the_single_unit_follows_what_the_operator_changed(installed: Installed, package: Path) -> None:
    root, units = installed.root, installed.root / "etc/systemd/system"
    text = installed.settings.read_text()
    # Settings that have left. A kept line must not end the start.
    text = text.replace("[server]", "[server]\nworkers = 0\nport = 8123")
    installed.settings.write_text(text.replace("[upstream]", "[upstream]\nmachines = 3"))
    (root / "etc/doi-proxy/instances").unlink()
    for link in units.glob("*.wants/doi-proxy*"):
        link.unlink()
    (units / "doi-proxy.service.d").mkdir()
    (units / "doi-proxy.service.d/token.conf").write_text("[Service]\nLoadCredential=admin-token:/etc/token\n")
    dpkg(root, "--install", package)
    assert enabled_units(root) == set(), "it was disabled, and stays so"
    assert (root / "etc/doi-proxy/instances").read_text() == f"DOI_PROXY_INSTANCES={3 * len(instances())}\n"
    assert (units / "doi-proxy@.service.d/token.conf").is_file()
    assert "ListenStream=127.0.0.1:8123\n" in (units / "doi-proxy.socket").read_text()
    (root / "etc/doi-proxy/instances").unlink()
    (units / "multi-user.target.wants/doi-proxy.service").symlink_to("/usr/lib/systemd/system/doi-proxy.service")
    dpkg(root, "--install", package)
    assert enabled_units(root) == {"doi-proxy.target", "doi-proxy.socket", *instances()}
    with serving(installed):
        assert "workers = 0" in installed.settings.read_text()


@needs_debian
def test_an_upgrade_keeps_the_operator_s_settings_and_a_purge_removes_all_but_other_files(
    installed: Installed, package: Path
) -> None:
    root = installed.root
    installed.settings.write_text("[server]\nport = 8001\n")
    (root / "etc/doi-proxy/store-url").write_text("valkey://:password@127.0.0.1/0")
    dpkg(root, "--install", package)
    assert installed.settings.read_text() == "[server]\nport = 8001\n"
    dpkg(root, "--purge", "doi-proxy")
    assert [path.name for path in (root / "etc/doi-proxy").iterdir()] == ["store-url"]
    left = (root / "opt/doi-proxy", root / "var/lib/doi-proxy", root / "usr/bin/doi-proxy")
    assert [path for path in left if path.exists()] == []
    assert enabled_units(root) == set()


@pytest.mark.skipif(
    subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode != 0,
    reason="this user may make no namespace of mounts",
)
def test_a_purge_empties_a_store_on_a_volume_of_its_own(tmp_path: Path) -> None:
    store = tmp_path / "var/lib/doi-proxy"
    store.mkdir(parents=True)
    (store / "doi-proxy.sqlite3").touch()
    purge = f"mount --bind {store} {store} && DPKG_ROOT={tmp_path} sh {DEBIAN / 'postrm'} purge"
    assert subprocess.run(["unshare", "-rm", "sh", "-c", purge], check=False).returncode == 0
    assert [*store.iterdir()] == []


@pytest.mark.skipif(
    shutil.which("shellcheck") is None, reason="shellcheck is not installed (Debian package: shellcheck)"
)
def test_the_scripts_of_the_package_are_clean() -> None:
    run("shellcheck", *(DEBIAN / name for name in SCRIPTS), "config/systemd/doi-proxy-restart")


@pytest.mark.skipif(
    shutil.which("apparmor_parser", path=f"{os.environ['PATH']}:/usr/sbin") is None,
    reason="apparmor_parser is not installed (Debian package: apparmor)",
)
def test_the_profile_of_apparmor_is_one() -> None:
    parser = shutil.which("apparmor_parser", path=f"{os.environ['PATH']}:/usr/sbin")
    run(str(parser), "--skip-kernel-load", "--skip-cache", "config/apparmor/doi-proxy")


# --- An upgrade from a repository ---------------------------------------------------------------------------------

#: Installs the package of this checkout, then upgrades it to a newer one from the repository of a release. The
#: upstream has ended by then.
UPGRADE: Final = """
exec 2>&1
apt-get install -qq -y ./old.deb > /dev/null
systemctl restart doi-proxy.target
curl -s -o /dev/null -w 'before: %{http_code}\\n' http://127.0.0.1:8000/10.1000/182
echo '# of the operator' >> /etc/doi-proxy/doi-proxy.toml
mv apt /srv/apt
echo 'deb [trusted=yes] file:/srv/apt stable main' > /etc/apt/sources.list.d/doi-proxy.list
only='-o Dir::Etc::sourcelist=/etc/apt/sources.list.d/doi-proxy.list -o Dir::Etc::sourceparts=/dev/null'
apt-get $only -qq update
apt-get $only -qq -y install --only-upgrade doi-proxy > /dev/null
kill "$(cat /tmp/doi.org.pid)"
systemctl restart doi-proxy.target
echo "version: $(doi-proxy --version)"
curl -s -o /dev/null -w 'after: %{http_code} %header{cache-status}\\n' http://127.0.0.1:8000/10.1000/182
echo "settings: $(tail -n 1 /etc/doi-proxy/doi-proxy.toml)"
"""


def test_apt_upgrades_the_package_to_a_newer_one_of_a_repository_and_its_store_stays(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if absent := missing() or clean_root.missing():
        pytest.skip(f"there is no Debian to upgrade on: {absent}")
    package: Path = request.getfixturevalue("package")
    release = read_commit(f"{VERSION.removesuffix('.dev')}.post1", "", "", PYTHON)
    (tmp_path / "release").mkdir()
    build(release, tmp_path / "work", tmp_path / "release", [build_debian])
    repository = tmp_path / "release/apt"
    files = {f"apt/{path.relative_to(repository)}": path for path in repository.rglob("*") if path.is_file()}
    printed = clean_root.run(UPGRADE, {"old.deb": package, **files})
    found = dict(line.split(": ", 1) for line in printed.splitlines() if ": " in line)
    assert (found["before"], found["version"]) == ("302", f"doi-proxy {release.version}"), printed
    assert found["after"].startswith("302 ")
    assert "hit" in found["after"]
    assert found["settings"] == "# of the operator"


# --- docs/operations.md -------------------------------------------------------------------------------------------

#: The programs of the commands on the page, besides those of every Debian system.
ON_THE_PAGE: Final = (
    "apt-get",
    "nginx",
    "prometheus",
    "prometheus-alertmanager",
    "promtool",
    "amtool",
    "openssl",
    "curl",
)


def missing_on_the_page() -> str | None:
    """A program that the page uses and that is not installed, or why there is no clean root."""
    absent = (program for program in ON_THE_PAGE if shutil.which(program, path=search_path()) is None)
    return missing() or next(absent, None) or clean_root.missing()


def test_the_path_of_the_operations_page_leads_from_nothing_to_https(request: pytest.FixtureRequest) -> None:
    if absent := missing_on_the_page():
        pytest.skip(f"the path cannot be followed here: {absent}")
    package: Path = request.getfixturevalue("package")
    found = commands(ROOT / "docs/operations.md")
    printed = clean_root.run(script(found), {f"dist/{package.name}": package})
    pairs = zip(found, outputs(printed, len(found)), strict=True)
    assert [(one.text, output) for one, output in pairs if output != one.output] == []
