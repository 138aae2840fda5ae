"""Clients that are generated from /openapi.json work, in Python and in TypeScript."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.features.openapi.clients.conftest import Site

pytestmark = pytest.mark.process

#: For the generation of a client, and for one run of it, in seconds.
_RUN: Final = 120

PYTHON: Final = """
import json, sys
from doi_client import Client
from doi_client.api.handle_api import get_api_handles
from doi_client.api.parsing import get_api_parse, post_api_parse
from doi_client.api.resolution import get_doi, head_doi
from doi_client.api.agencies import get_ra
from doi_client.api.operation import get_healthz

client = Client(sys.argv[1])
record = get_api_handles.sync("10.1000/182", client=client, type_=["URL"])
missing = get_api_handles.sync_detailed("10.5555/nope", client=client)
print(json.dumps({
    "values": [[value.index, value.type_] for value in record.values],
    "missing": [missing.status_code, missing.parsed.response_code],
    "location": get_doi.sync_detailed("10.1000/182", client=client).headers["location"],
    "head": head_doi.sync_detailed("10.1000/182", client=client).status_code,
    "kind": get_api_parse.sync(client=client, doi="doi:10.1000/182").kind,
    "kinds": [row.kind for row in post_api_parse.sync(client=client, body=["10.1000/182", "hello"])],
    "agencies": [row.ra for row in get_ra.sync("10.1000/182", client=client)],
    "health": get_healthz.sync(client=client).status,
}))
"""
TYPESCRIPT: Final = """
import createClient from "openapi-fetch";
import type { paths } from "./api";

const client = createClient<paths>({ baseUrl: process.argv[2] });
const record = await client.GET("/api/handles/{handle}", {
  params: { path: { handle: "10.1000/182" }, query: { type: ["URL"] } },
});
const missing = await client.GET("/api/handles/{handle}", { params: { path: { handle: "10.5555/nope" } } });
const found = await client.GET("/{doi}", {
  params: { path: { doi: "10.1000/182" } }, redirect: "manual", parseAs: "text",
});
const parsed = await client.GET("/api/parse", { params: { query: { doi: "doi:10.1000/182" } } });
const many = await client.POST("/api/parse", { body: ["10.1000/182", "hello"] });
const values: [number, string][] | undefined = typeof record.data === "string"
  ? undefined : record.data?.values?.map((value) => [value.index, value.type]);
const kinds: string[] | null = Array.isArray(many.data) ? many.data.map((row) => row.kind) : null;
console.log(JSON.stringify({
  values, kinds, missing: missing.response.status, kind: parsed.data?.kind, status: found.response.status,
  location: found.response.headers.get("location"),
}));
"""


def run(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=_RUN,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def last_line(output: str) -> Any:
    return json.loads(output.strip().split("\n")[-1])


def test_a_python_client_works(site: Site, python_programs: Path, tmp_path: Path) -> None:
    generate = [str(python_programs / "openapi-python-client"), "generate", "--url", f"{site.url}/openapi.json"]
    said = run(
        [*generate, "--output-path", str(tmp_path / "doi_client"), "--meta", "none"],
        tmp_path,
        PATH=f"{python_programs}{os.pathsep}{os.environ['PATH']}",
    )
    # It has no code for bodies that are lists of lines, and leaves these out.
    left_out = [line for line in said.split("\n") if line.startswith("Unsupported") and "content type" not in line]
    assert left_out == []
    got = last_line(run([str(python_programs / "python"), "-c", PYTHON, site.url], tmp_path))
    assert got == {
        "values": [[1, "URL"]],
        "missing": [404, 100],
        "location": "http://www.doi.org/hb.html",
        "head": 302,
        "kind": "doi",
        "kinds": ["doi", "not_a_doi"],
        "agencies": ["Example"],
        "health": "ok",
    }


def test_a_typescript_client_works(site: Site, node: Path, tmp_path: Path) -> None:
    programs = node / "node_modules" / ".bin"
    (tmp_path / "node_modules").symlink_to(node / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}', "utf-8")
    (tmp_path / "client.ts").write_text(TYPESCRIPT, "utf-8")
    run([str(programs / "openapi-typescript"), f"{site.url}/openapi.json", "-o", "api.d.ts"], tmp_path)
    options = "--strict --skipLibCheck --target es2022 --module esnext --moduleResolution bundler"
    (tmp_path / "process.d.ts").write_text("declare const process: { argv: string[] };", "utf-8")
    run(
        [str(programs / "tsc"), *options.split(), "--lib", "es2022,dom,dom.iterable", "client.ts", "process.d.ts"],
        tmp_path,
    )
    got = last_line(run(["node", "client.js", site.url], tmp_path))
    assert got == {
        "values": [[1, "URL"]],
        "kinds": ["doi", "not_a_doi"],
        "missing": 404,
        "kind": "doi",
        "status": 302,
        "location": "http://www.doi.org/hb.html",
    }
