"""The file of restricted values: what is refused, where, and what `doi-proxy check` says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from app.assembly.checks import CoreInspection
from app.assembly.settings import Settings
from app.errors import ConfigurationError
from app.features.restricted.check import find_restricted_problems
from app.features.restricted.file import read_access
from tests.features.restricted.world import TOKEN, write_file
from tests.table import table

REFUSED: Final[list[tuple[dict[str, str | None], str]]] = [
    ({"identity": None}, "'' is not an index and a handle; write it as 300:10.1234/ADMIN"),
    ({"identity": '"10.1000/ADMIN"'}, "'10.1000/ADMIN' is not an index and a handle"),
    ({"identity": '"0:10.1000/ADMIN"'}, "is not an index and a handle"),
    ({"identity": "300"}, "identity is not a text"),
    ({"secret_key": None}, "name one file of a key: secret_key (HS_SECKEY) or private_key (HS_PUBKEY)"),
    ({"private_key": '"identity.pem"'}, "name one file of a key"),
    ({"secret_key": '"missing.key"'}, "missing.key: it cannot be read: No such file or directory"),
    ({"secret_key": '"."'}, "it is not a regular file"),
    ({"secret_key": None, "private_key": '"identity.key"'}, "this is not a private key in PEM without a passphrase"),
    ({"prefixes": None}, "no prefix is named, such as 10.1234"),
    ({"prefixes": '["10.1000/"]'}, "'10.1000/' is not a prefix such as 10.1234"),
    ({"prefixes": '["0.NA"]'}, "'0.NA' is not a prefix"),
    ({"prefixes": '"10.1000"'}, "prefixes is not a list"),
    ({"tokens": None}, "no reader gets the values; name a file of tokens, or networks"),
    ({"tokens": '"short.tokens"'}, "short.tokens: line 2 is not a token of at least 16 printable ASCII characters"),
    ({"tokens": '"empty.tokens"'}, "empty.tokens has 0 tokens; it needs 1 to 100"),
    ({"networks": '["192.0.2.1/24"]'}, "has host bits set; write a network such as 192.0.2.0/24"),
    ({"networks": '["0.0.0.0/0"]'}, "every client would be a reader"),
    ({"nets": "[]"}, "'nets' is not known; use identity, secret_key, private_key, prefixes, tokens, networks"),
]


@table(("lines", "problem"), REFUSED)
def test_a_file_that_cannot_be_used_is_refused_with_its_line(
    tmp_path: Path, lines: dict[str, str | None], problem: str
) -> None:
    (tmp_path / "short.tokens").write_text("# none\nhunter2 hunter2 hunter2\n", "utf-8")
    (tmp_path / "empty.tokens").write_text("# none\n", "utf-8")
    file = write_file(tmp_path, **lines)
    with pytest.raises(ConfigurationError) as caught:
        read_access(file, bytes(16))
    assert str(file) in caught.value.message and problem in caught.value.message
    # No message has a part of a secret.
    assert "hunter" not in caught.value.message and "a secret key" not in caught.value.message


def test_a_file_that_is_not_toml_or_is_missing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("identity = \n", "utf-8")
    for name in ("a.toml", "b.toml"):
        with pytest.raises(ConfigurationError, match=name):
            read_access(tmp_path / name, bytes(16))


def test_secrets_are_not_in_the_representation(tmp_path: Path) -> None:
    shown = repr(read_access(write_file(tmp_path), bytes(16)))
    assert TOKEN not in shown and "secret" not in shown


def check(file: Path, **settings: Any) -> list[str]:
    usual: dict[str, Any] = {"upstream_url": "hdl://127.0.0.1:2641", "native_restricted": file}
    found = find_restricted_problems(CoreInspection(Settings(**(usual | settings))))
    return [f"{one.severity}: {one.problem}; {one.remedy}" for one in found]


def test_check_says_what_the_other_settings_make_useless_or_unsafe(tmp_path: Path) -> None:
    file = write_file(tmp_path)
    assert check(file) == []
    (only,) = check(file, upstream_url="https://doi.org")
    assert only.startswith("error: no handle server answers the names of 10.1000")
    assert check(file, upstream_url="https://doi.org", upstream_routes="10.1000=hdl://127.0.0.1:2641") == []
    (only,) = check(file, mode="sealed")
    assert only.startswith("warning: a sealed proxy does not query handle servers")
    (tmp_path / "identity.key").chmod(0o644)
    (only,) = check(file)
    assert only.startswith("warning: every user of this machine can read") and only.endswith("identity.key")


def test_networks_need_a_host_and_named_front_proxies(tmp_path: Path) -> None:
    file = write_file(tmp_path, networks='["127.0.0.0/8"]')
    url = {"public_url": "https://doi.example.org"}
    assert check(file)[0].startswith("error: networks needs public_url")
    assert check(file, trusted_proxies="*", **url)[0].startswith("error: networks cannot be used with trusted_proxies")
    (only,) = check(file, **url)
    assert only.startswith("warning: networks has this machine")
