"""Clients that are generated from /openapi.json work, in Python and in TypeScript."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.features.openapi.clients.conftest import TOKEN, Site

pytestmark = [pytest.mark.process, pytest.mark.nightly]

#: For the generation of a client, and for one run of it, in seconds.
_RUN: Final = 120

PYTHON: Final = """
import json, sys
from doi_client import AuthenticatedClient, Client
from doi_client.api.check import post_api_resolve
from doi_client.api.operate import (
    get_admin_deny, get_admin_entries, get_admin_explain, get_admin_settings, get_healthz, get_readyz, get_status,
    post_admin_deny, post_admin_purge, post_admin_refresh, post_admin_reload,
)
from doi_client.api.read import get_api_parse, post_api_extract, post_api_parse
from doi_client.api.resolve import get_api_handles, get_doi, get_ra, get_ra_list
from doi_client.models import DenyRequest, PostApiExtractJsonBody, PurgeRequest, RefreshRequest

client = Client(sys.argv[1])
admin = AuthenticatedClient(sys.argv[1], token=sys.argv[2])
record = get_api_handles.sync("10.1000/182", client=client, type_=["URL"])
missing = get_api_handles.sync_detailed("10.5555/nope", client=client)
print(json.dumps({
    "values": [[value.index, value.type_] for value in record.values],
    "missing": [missing.status_code, missing.parsed.response_code],
    "location": get_doi.sync_detailed("10.1000/182", client=client).headers["location"],
    "kind": get_api_parse.sync(client=client, doi="doi:10.1000/182").kind,
    "kinds": [row.kind for row in post_api_parse.sync(client=client, body=["10.1000/182", "hello"])],
    "found": [row.doi for row in post_api_extract.sync(client=client, body=PostApiExtractJsonBody("See 10.1000/182."))],
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
    "denial": post_admin_deny.sync(client=admin, body=DenyRequest(network="192.0.2.0/24", seconds=0)).network,
    "refreshed": post_admin_refresh.sync(client=admin, body=RefreshRequest(doi="10.1000/182")).refreshed,
    "purged": post_admin_purge.sync(client=admin, body=PurgeRequest(doi="10.1000/182")).entries,
    "reloaded": post_admin_reload.sync(client=admin).reloading,
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
const extracted = await client.POST("/api/extract", { body: { text: "See 10.1000/182." } });
const found_names: string[] | null = Array.isArray(extracted.data) ? extracted.data.map((row) => row.doi) : null;
const values: [number, string][] | undefined = typeof record.data === "string"
  ? undefined : record.data?.values?.map((value) => [value.index, value.type]);
const kinds: string[] | null = Array.isArray(many.data) ? many.data.map((row) => row.kind) : null;
console.log(JSON.stringify({
  values, kinds, found: found_names, missing: missing.response.status, kind: parsed.data?.kind,
  status: found.response.status, location: found.response.headers.get("location"),
}));
"""
#: What each client reads: of each answer a member, or that member of all its rows.
ANSWERS: Final = {
    "record": ("responseCode", 1),
    "parsed": ("kind", "doi"),
    "many": ("*kind", ["doi", "doi"]),
    "rows": ("*verdict", ["resolved", "not_found"]),
    "found": ("*doi", ["10.1000/182"]),
    "agencies": ("*DOI", ["10.1000/182", "10.1000"]),
    "path": ("*RA", ["Example"]),
    "health": ("status", "ok"),
    "ready": ("ready", True),
    "status": ("uptime", None),
    "entry": ("state", "fresh"),
    "explained": ("status", 302),
    "settings": ("mode", "online"),
    "denial": ("network", "192.0.2.0/24"),
    "denied": ("*network", ["192.0.2.0/24"]),
    "refreshed": ("refreshed", True),
    "purged": ("entries", 1),
    "reloaded": ("reloading", True),
}
HEY_API: Final = """
import * as api from "./client/sdk.gen";

async function main() {
const baseUrl = process.argv[2];
const auth = () => process.argv[3];
const names = ["10.1000/182", "10.5555/nope"];
const doi = "10.1000/182";
const answers = {
  record: await api.getApiHandles({ baseUrl, path: { handle: doi }, query: { type: ["URL"] } }),
  parsed: await api.getApiParse({ baseUrl, query: { doi: "doi:10.1000/182" } }),
  many: await api.postApiParse({ baseUrl, body: names }),
  rows: await api.postApiResolve({ baseUrl, body: names }),
  found: await api.postApiExtract({ baseUrl, body: { text: "See 10.1000/182." } }),
  agencies: await api.getRaList({ baseUrl, query: { names: [doi, "10.1000"] } }),
  path: await api.getRa({ baseUrl, path: { names: doi } }),
  health: await api.getHealthz({ baseUrl }),
  ready: await api.getReadyz({ baseUrl }),
  status: await api.getStatus({ baseUrl }),
  entry: await api.getAdminEntries({ baseUrl, auth, path: { doi } }),
  explained: await api.getAdminExplain({ baseUrl, auth, query: { doi } }),
  settings: await api.getAdminSettings({ baseUrl, auth }),
  denial: await api.postAdminDeny({ baseUrl, auth, body: { network: "192.0.2.0/24", seconds: 600 } }),
  denied: await api.getAdminDeny({ baseUrl, auth }),
  refreshed: await api.postAdminRefresh({ baseUrl, auth, body: { doi } }),
  purged: await api.postAdminPurge({ baseUrl, auth, body: { doi } }),
  reloaded: await api.postAdminReload({ baseUrl, auth }),
};
const bodies = Object.entries(answers).map(([key, got]) => [key, got.data ?? got.error]);
console.log(JSON.stringify(Object.fromEntries(bodies)));
}

main();
"""
SWAGGER: Final = """
import { Api } from "./client/Api";

async function main() {
const token = { headers: { Authorization: `Bearer ${process.argv[3]}` } };
const client = new Api({ baseUrl: process.argv[2], securityWorker: () => token });
const names = ["10.1000/182", "10.5555/nope"];
const doi = "10.1000/182";
const answers = {
  record: await client.api.getApiHandles(doi, { type: ["URL"] }),
  parsed: await client.api.getApiParse({ doi: "doi:10.1000/182" }),
  many: await client.api.postApiParse(names),
  rows: await client.api.postApiResolve(names),
  found: await client.api.postApiExtract({ text: "See 10.1000/182." }),
  agencies: await client.ra.getRaList({ names: [doi, "10.1000"] }),
  path: await client.ra.getRa(doi),
  health: await client.healthz.getHealthz(),
  ready: await client.readyz.getReadyz(),
  status: await client.status.getStatus(),
  entry: await client.admin.getAdminEntries(doi),
  explained: await client.admin.getAdminExplain({ doi }),
  settings: await client.admin.getAdminSettings(),
  denial: await client.admin.postAdminDeny({ network: "192.0.2.0/24", seconds: 600 }),
  denied: await client.admin.getAdminDeny(),
  refreshed: await client.admin.postAdminRefresh({ doi }),
  purged: await client.admin.postAdminPurge({ doi }),
  reloaded: await client.admin.postAdminReload(),
};
const bodies = Object.entries(answers).map(([key, got]) => [key, got.data ?? got.error]);
console.log(JSON.stringify(Object.fromEntries(bodies)));
}

main();
"""
ORVAL: Final = """
import * as api from "./client/api";

async function main() {
const headers = { Authorization: `Bearer ${process.argv[3]}`, "Content-Type": "application/json" };
const json = { headers };
const names = ["10.1000/182", "10.5555/nope"];
const doi = "10.1000/182";
// A call whose answer can also be lines gives the response itself.
const read = async (got: unknown) => ({ data: await (got as { stream: Response }).stream.json() });
const answers = {
  record: await api.getApiHandles(doi, { type: ["URL"] }),
  parsed: await api.getApiParse({ doi: "doi:10.1000/182" }),
  many: await read(await api.postApiParse(names, {}, json)),
  rows: await read(await api.postApiResolve(names, {}, json)),
  found: await read(await api.postApiExtract({ text: "See 10.1000/182." }, {}, json)),
  agencies: await api.getRaList({ names: [doi, "10.1000"] }),
  path: await api.getRa(doi),
  health: await api.getHealthz(),
  ready: await api.getReadyz(),
  status: await api.getStatus(),
  entry: await api.getAdminEntries(doi, json),
  explained: await api.getAdminExplain({ doi }, json),
  settings: await api.getAdminSettings(json),
  denial: await api.postAdminDeny({ network: "192.0.2.0/24", seconds: 600 }, json),
  denied: await api.getAdminDeny(json),
  refreshed: await api.postAdminRefresh({ doi }, json),
  purged: await api.postAdminPurge({ doi }, json),
  reloaded: await api.postAdminReload(json),
};
const bodies = Object.entries(answers).map(([key, got]) => [key, got.data]);
console.log(JSON.stringify(Object.fromEntries(bodies)));
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
        "kind": "doi",
        "kinds": ["doi", "not_a_doi"],
        "found": ["10.1000/182"],
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
        "denial": "192.0.2.0/24",
        "refreshed": True,
        "purged": 1,
        "reloaded": True,
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


def check_answers(got: Mapping[str, Any]) -> None:
    """Every answer has its member. Of rows, it is read in each; a list can be the only member of an object."""
    assert got.keys() == ANSWERS.keys()
    for key, (member, expected) in ANSWERS.items():
        answer = got[key]
        assert answer is not None, key
        if isinstance(answer, dict) and member[0] == "*":
            (answer,) = answer.values()
        found = [row[member[1:]] for row in answer] if member[0] == "*" else answer[member]
        assert expected is None or found == expected, (key, answer)


def test_a_client_of_hey_api_reads_every_json(site: Site, node: Path, tmp_path: Path) -> None:
    generate = ["openapi-ts", "-i", f"{site.url}/openapi.json", "-o", "client", "-c", "@hey-api/client-fetch"]
    check_answers(run_typescript(site, node, tmp_path, HEY_API, generate, "commonjs"))


def test_a_client_of_swagger_typescript_api_reads_every_json(site: Site, node: Path, tmp_path: Path) -> None:
    generate = ["swagger-typescript-api", "generate", "-p", f"{site.url}/openapi.json", "-o", "client", "-n", "Api.ts"]
    check_answers(run_typescript(site, node, tmp_path, SWAGGER, generate, "commonjs"))


@pytest.mark.skipif(
    "ORVAL" not in os.environ, reason="ORVAL, a folder with orval 7.13 and typescript (npm), is not set"
)
def test_a_client_of_orval_reads_every_json(site: Site, tmp_path: Path) -> None:
    """Its 170 packages more than double those of the other generators, so they are not among the locked ones."""
    node = Path(os.environ["ORVAL"])
    output = {"target": "client/api.ts", "client": "fetch", "mode": "single", "baseUrl": site.url}
    config = {"api": {"input": f"{site.url}/openapi.json", "output": output}}
    (tmp_path / "orval.config.js").write_text(f"module.exports = {json.dumps(config)}", "utf-8")
    generate = ["orval", "--config", "orval.config.js"]
    check_answers(run_typescript(site, node, tmp_path, ORVAL, generate, "commonjs"))


def test_a_typescript_client_works(site: Site, node: Path, tmp_path: Path) -> None:
    generate = ["openapi-typescript", f"{site.url}/openapi.json", "-o", "api.d.ts"]
    got = run_typescript(site, node, tmp_path, TYPESCRIPT, generate, "module")
    assert got == {
        "values": [[1, "URL"]],
        "kinds": ["doi", "not_a_doi"],
        "found": ["10.1000/182"],
        "missing": 404,
        "kind": "doi",
        "status": 302,
        "location": "http://www.doi.org/hb.html",
    }
