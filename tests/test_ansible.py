"""The Ansible role: it installs the package on a copy of this machine, as an operator would, and changes it again."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Final

import jinja2
import pytest
import yaml

from doi_proxy.assembly.settings import Settings
from tests.test_debian_package import build_package, missing
from tools import clean_root

ROOT: Final = Path(__file__).resolve().parents[1]
ANSIBLE: Final = ROOT / "config/ansible"
ROLE: Final = ANSIBLE / "roles/doi_proxy"

pytestmark = pytest.mark.repository

#: The first run installs; the second, of the same, changes nothing; the third changes settings, the fourth is refused.
#: In place of systemd, which does not run there, a script writes down what it is asked to do.
RUNS: Final = """
exec 2>&1
play() {
    ANSIBLE_ROLES_PATH=roles ansible-playbook -c local -i one,two, -e ansible_python_interpreter=/usr/bin/python3 \\
        -e "$1" play.yml
}
cat > /usr/local/bin/systemctl <<'STAND_IN'
#!/bin/sh
echo "$*" >> /tmp/systemctl.log
[ "$1" = list-units ] ||
printf 'LoadState=loaded\\nActiveState=active\\nUnitFileState=enabled\\n'
STAND_IN
printf -- '- hosts: all\\n  gather_facts: false\\n  serial: 1\\n  roles: [doi_proxy]\\n' > play.yml
settings='"doi_proxy_settings": {"server": {"public_url": "https://doi.example.org"}, "upstream": {"rate": 20}}'
package='"doi_proxy_package": "/root/doi-proxy.deb"'
play "{$package, $settings}"
echo "first: $?"
play "{$package, $settings}"
play "{$package, \\"doi_proxy_admin_token\\": \\"0123456789abcdef0123456789abcdef\\"}"
echo "settings:"
cat /etc/doi-proxy/doi-proxy.toml
echo "drop-in:"
cat /etc/systemd/system/doi-proxy@.service.d/admin-token.conf
echo "restarts: $(grep -c '^list-units' /tmp/systemctl.log)"
stat -c 'token: %a %U' /etc/doi-proxy/admin-token
play "{$package, \\"doi_proxy_settings\\": {\\"server\\": {\\"prt\\": 1}}}" || echo "refused"
"""


def test_the_role_starts_from_the_settings_of_the_package() -> None:
    role = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))["doi_proxy_package_settings"]
    package = tomllib.loads((ROOT / "config/systemd/doi-proxy.toml").read_text(encoding="utf-8"))
    assert role == {table: keys for table, keys in package.items() if keys}


def test_the_example_names_settings_that_exist() -> None:
    (play,) = yaml.safe_load((ANSIBLE / "example.yml").read_text(encoding="utf-8"))
    given = play["roles"][0]["vars"]["doi_proxy_settings"]
    known = {Settings.table_and_key(name) for name in Settings.model_fields}
    assert {(table, key) for table, keys in given.items() for key in keys} <= known


def test_the_example_takes_the_package_from_the_folder_of_the_artefacts() -> None:
    (play,) = yaml.safe_load((ANSIBLE / "example.yml").read_text(encoding="utf-8"))
    package = play["roles"][0]["vars"]["doi_proxy_package"].replace("{{ playbook_dir }}", str(ANSIBLE))
    assert Path(package).parent.resolve() == ROOT / "dist"


def test_every_form_of_a_value_is_written_as_toml() -> None:
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)
    environment.filters |= {"to_json": json.dumps, "combine": lambda first, second, recursive: first | second}
    template = environment.from_string((ROLE / "templates/doi-proxy.toml.j2").read_text(encoding="utf-8"))
    settings = {
        "branding": {"name": 'Bücherei "Nord" \N{BOOKS}'},
        "server": {"trusted_proxies": ["127.0.0.1", "::1"], "proxy_protocol": True},
        "upstream": {"rate": 2.5, "routes": ["10.5555=https://a.example", "10.1000=https://b.example"]},
    }
    text = template.render(doi_proxy_package_settings={}, doi_proxy_settings=settings, ansible_managed="managed")
    assert tomllib.loads(text) == settings, text


@pytest.mark.nightly
def test_the_role_installs_once_and_a_wrong_setting_replaces_nothing(tmp_path: Path) -> None:
    absent = missing() or clean_root.missing()
    if absent or shutil.which("ansible-playbook") is None:
        pytest.skip(f"the role is not run: {absent or 'the Debian package ansible-core is not installed'}")
    files = {f"roles/{path.relative_to(ROLE.parent)}": path for path in ROLE.rglob("*") if path.is_file()}
    printed = clean_root.run(RUNS, {"doi-proxy.deb": build_package(tmp_path), **files})
    assert "first: 0" in printed, printed
    runs = [line for line in printed.splitlines() if re.match(r"(one|two) +: ", line)]
    # The machines share their files here, so the second one finds nothing to change. It comes after the first one is
    # done, and is left alone if that one fails.
    assert [(line[:3], "changed=0" in line, "failed=0" in line) for line in runs] == [
        ("one", False, True),
        ("two", True, True),
        ("one", True, True),
        ("two", True, True),
        ("one", False, True),
        ("two", True, True),
        ("one", True, False),
    ], printed
    first = printed[: printed.index("first: 0")]
    assert first.rindex("[one]") < first.index("[two]")
    assert "LoadCredential=admin-token:/etc/doi-proxy/admin-token" in printed
    assert "token: 600 root" in printed
    assert "restarts: 2\n" in printed
    assert "there is no such setting; did you mean" in printed
