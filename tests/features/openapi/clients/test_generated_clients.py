"""Clients that are generated from /openapi.json work, in Python and in TypeScript."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.features.openapi.clients.conftest import TOKEN, Site

pytestmark = pytest.mark.process

#: For the generation of a client, and for one run of it, in seconds.
_RUN: Final = 120

PYTHON: Final = """
import json, sys
from doi_client import AuthenticatedClient, Client
from doi_client.api.handle_api import get_api_handles
from doi_client.api.parsing import get_api_parse, post_api_parse
from doi_client.api.resolution import get_doi, head_doi
from doi_client.api.resolution import post_api_resolve
from doi_client.api.agencies import get_ra, get_ra_list
from doi_client.api.operation import get_healthz, get_readyz, get_status
from doi_client.api.cache import get_admin_entries, get_admin_explain, post_admin_purge
from doi_client.api.service import get_admin_deny, get_admin_settings
from doi_client.models import PurgeRequest

client = Client(sys.argv[1])
admin = AuthenticatedClient(sys.argv[1], token=sys.argv[2])
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
    "list": [row.doi for row in get_ra_list.sync(client=client, names=["10.1000/182", "10.1000"])],
    "verdicts": [row.verdict for row in post_api_resolve.sync(client=client, body=["10.1000/182", "10.5555/nope"])],
    "health": get_healthz.sync(client=client).status,
    "ready": get_readyz.sync(client=client).ready,
    "working": get_status.sync(client=client).summary.state,
    "entry": get_admin_entries.sync("10.1000/182", client=admin).state,
    "explained": get_admin_explain.sync(client=admin, doi="10.1000/182").status,
    "denied": get_admin_deny.sync(client=admin).denied,
    "setting": get_admin_settings.sync(client=admin)["mode"],
    "purged": post_admin_purge.sync(client=admin, body=PurgeRequest(doi="10.1000/182")).entries,
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
HEY_API: Final = """
import * as api from "./client/sdk.gen";

async function main() {
const baseUrl = process.argv[2];
const auth = () => process.argv[3];
const names = ["10.1000/182", "10.5555/nope"];
const record = await api.getApiHandles({ baseUrl, path: { handle: "10.1000/182" }, query: { type: ["URL"] } });
const parsed = await api.getApiParse({ baseUrl, query: { doi: "doi:10.1000/182" } });
const many = await api.postApiParse({ baseUrl, body: names });
const rows = await api.postApiResolve({ baseUrl, body: names });
const found = await api.postApiExtract({
  baseUrl, body: "See 10.1000/182.", query: { output: "json" }, headers: { "Content-Type": "text/plain" },
  bodySerializer: (text: unknown) => String(text), parseAs: "json",
});
const agencies = await api.getRaList({ baseUrl, query: { names: ["10.1000/182", "10.1000"] } });
const path = await api.getRa({ baseUrl, path: { names: "10.1000/182" } });
const health = await api.getHealthz({ baseUrl });
const ready = await api.getReadyz({ baseUrl });
const status = await api.getStatus({ baseUrl });
const entry = await api.getAdminEntries({ baseUrl, auth, path: { doi: "10.1000/182" } });
const explained = await api.getAdminExplain({ baseUrl, auth, query: { doi: "10.1000/182" } });
const list = (data: unknown, member: string) => (data as Record<string, unknown>[]).map((row) => row[member]);
const one = (data: unknown, member: string) => (data as Record<string, unknown>)[member];
console.log(JSON.stringify({
  record: one(record.data, "responseCode"), parsed: one(parsed.data, "kind"), many: list(many.data, "kind"),
  rows: list(rows.data, "verdict"), found: list(found.data, "doi"), agencies: list(agencies.data, "DOI"),
  path: list(path.data, "RA"), health: one(health.data, "status"), ready: one(ready.data, "ready"),
  status: one(one(status.data, "summary"), "state"), entry: one(entry.data, "state"),
  explained: one(explained.data, "status"),
}));
}

main();
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
    got = last_line(run([str(python_programs / "python"), "-c", PYTHON, site.url, TOKEN], tmp_path))
    assert got == {
        "values": [[1, "URL"]],
        "missing": [404, 100],
        "location": "http://www.doi.org/hb.html",
        "head": 302,
        "kind": "doi",
        "kinds": ["doi", "not_a_doi"],
        "agencies": ["Example"],
        "list": ["10.1000/182", "10.1000"],
        "verdicts": ["resolved", "not_found"],
        "health": "ok",
        "ready": True,
        "working": "working",
        "entry": "fresh",
        "explained": 302,
        "denied": [],
        "setting": "online",
        "purged": 1,
    }


def run_typescript(site: Site, node: Path, folder: Path, program: str, generate: list[str], module: str) -> Any:
    """What a program prints. `generate` writes the client that it imports; `module` is the kind of its modules."""
    programs = node / "node_modules" / ".bin"
    (folder / "node_modules").symlink_to(node / "node_modules")
    (folder / "package.json").write_text(f'{{"type": "{module}"}}', "utf-8")
    (folder / "program.ts").write_text(program, "utf-8")
    run([str(programs / generate[0]), *generate[1:]], folder)
    options = "--strict --skipLibCheck --target es2022 --lib es2022,dom,dom.iterable"
    kind = {"module": "--module esnext --moduleResolution bundler", "commonjs": "--module commonjs"}[module]
    (folder / "process.d.ts").write_text("declare const process: { argv: string[] };", "utf-8")
    run([str(programs / "tsc"), *options.split(), *kind.split(), "program.ts", "process.d.ts"], folder)
    return last_line(run(["node", "program.js", site.url, TOKEN], folder))


def test_a_client_of_hey_api_reads_every_json(site: Site, node: Path, tmp_path: Path) -> None:
    generate = ["openapi-ts", "-i", f"{site.url}/openapi.json", "-o", "client", "-c", "@hey-api/client-fetch"]
    got = run_typescript(site, node, tmp_path, HEY_API, generate, "commonjs")
    assert got == {
        "record": 1,
        "parsed": "doi",
        "many": ["doi", "doi"],
        "rows": ["resolved", "not_found"],
        "found": ["10.1000/182"],
        "agencies": ["10.1000/182", "10.1000"],
        "path": ["Example"],
        "health": "ok",
        "ready": True,
        "status": "working",
        "entry": "fresh",
        "explained": 302,
    }


def test_a_typescript_client_works(site: Site, node: Path, tmp_path: Path) -> None:
    generate = ["openapi-typescript", f"{site.url}/openapi.json", "-o", "api.d.ts"]
    got = run_typescript(site, node, tmp_path, TYPESCRIPT, generate, "module")
    assert got == {
        "values": [[1, "URL"]],
        "kinds": ["doi", "not_a_doi"],
        "missing": 404,
        "kind": "doi",
        "status": 302,
        "location": "http://www.doi.org/hb.html",
    }
