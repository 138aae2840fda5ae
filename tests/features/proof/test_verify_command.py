"""`doi-proxy verify`, and the commands of the manual by which openssl checks the same."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import pytest

from doi_proxy.commands.main import main
from tests.handle_protocol.server import HandleServer, write_bootstrap
from tests.web.proxy import Proxy

NAME: Final = "10.1000/182"
_MANUAL: Final = Path(__file__).parents[3] / "docs/proof.md"
_TOOLS: Final = ("bash", "jq", "openssl", "xxd")


@pytest.fixture
def proof(tmp_path: Path) -> dict[str, Any]:
    """The proof of a name, in the file proof.json beside root.json."""

    async def prove() -> dict[str, Any]:
        async with HandleServer() as root, HandleServer(serial=2) as home:
            (tmp_path / "root.json").write_bytes(write_bootstrap(root))
            root.put_values("0.NA/10.1000", home.site_value())
            home.put(NAME, url="https://target.example/")
            settings = {"upstream_url": "hdl:", "upstream_bootstrap": tmp_path / "root.json"}
            async with Proxy(**settings, upstream_private_servers=True) as proxy:
                assert (await proxy.get(f"/api/handles/{NAME}?cert")).status == 200
                document: dict[str, Any] = (await proxy.get(f"/api/proof/{NAME}")).json
                return document

    document = asyncio.run(prove())
    (tmp_path / "proof.json").write_text(json.dumps(document))
    return document


def verify(folder: Path, *flags: str) -> int:
    return main(["verify", str(folder / "proof.json"), "--upstream-bootstrap", str(folder / "root.json"), *flags])


def test_the_exit_status_and_one_sentence_say_whether_a_proof_holds(
    proof: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(tmp_path) == 0
    printed = capsys.readouterr()
    assert (printed.out.count("\n"), printed.err) == (1, "")
    assert printed.out.startswith(f"{NAME} has these 1 values")
    assert verify(tmp_path, "--at", "2099-01-01") == 1
    assert "The proof expired at" in capsys.readouterr().err
    west = datetime.fromisoformat(proof["expires"]).astimezone(timezone(timedelta(hours=-5)))
    assert verify(tmp_path, "--at", west.isoformat()) == 1
    assert verify(tmp_path, "--at", (west - timedelta(seconds=1)).isoformat()) == 0
    capsys.readouterr()
    proof["values"][0]["data"]["value"] = "https://evil.example/"
    (tmp_path / "proof.json").write_text(json.dumps(proof))
    assert verify(tmp_path) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert "The member 'values' of the document is not what its signed messages say." in printed.err


def test_a_file_that_cannot_be_read_is_one_sentence(
    proof: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "proof.json").unlink()
    assert verify(tmp_path) == 1
    assert capsys.readouterr().err.endswith("proof.json: No such file or directory\n")
    (tmp_path / "proof.json").mkdir()
    assert verify(tmp_path) == 1
    assert "not a regular file" in capsys.readouterr().err
    assert main(["verify", "x.json"]) == 2
    assert "--upstream-bootstrap FILE is missing" in capsys.readouterr().err


def _run_manual(folder: Path) -> str:
    blocks = re.findall(r"```sh\n(.*?)```", _MANUAL.read_text(), re.DOTALL)
    script = "".join(blocks[1:])
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    ).stdout


@pytest.mark.process
@pytest.mark.skipif(not all(map(shutil.which, _TOOLS)), reason="openssl, jq or xxd is not installed")
def test_openssl_checks_the_same_by_the_commands_of_the_manual(proof: dict[str, Any], tmp_path: Path) -> None:
    expected = ["Verified OK"] * 2 + ["request 0 answered", "request 1 answered"]
    expected += ["key 0 is the root's", "key 1 is named by answer 0"]
    assert _run_manual(tmp_path).splitlines() == expected
    proof["messages"][1]["signed"] = proof["messages"][0]["signed"]
    (tmp_path / "proof.json").write_text(json.dumps(proof))
    changed = _run_manual(tmp_path).splitlines()
    assert "Verified OK" in changed
    assert "request 1 answered" not in changed
    assert changed.count("Verified OK") == 1
