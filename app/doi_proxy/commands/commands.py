"""The commands of `doi-proxy`, in the order of its help. Only the module of the command that runs is imported."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

_ALL: Final = {
    "serve": ("answer requests over HTTP", "doi_proxy.commands.own_commands"),
    "resolve": ("resolve the names of lists: one row with a verdict for each name", "doi_proxy.features.lists.command"),
    "demo": (
        "start a proxy with a stand-in for the upstream, and an outage by a key",
        "doi_proxy.features.setup.command",
    ),
    "config": ("print the settings in force, with secrets masked", "doi_proxy.commands.own_commands"),
    "check": (
        "examine settings, files, store and upstream, or whether the running proxy is ready",
        "doi_proxy.features.setup.command",
    ),
    "setup": (
        "ask six questions and write the settings, the unit, the front proxy's file and the alerts",
        "doi_proxy.features.setup.command",
    ),
    "gen-config": (
        "print the configuration of a front proxy, or a systemd unit",
        "doi_proxy.features.setup.command",
    ),
    "doctor": ("probe the front proxy and name what to change in it", "doi_proxy.features.setup.command"),
    "runbook": (
        "print what an alert means, what to look at and what to do, or a page of the manual",
        "doi_proxy.features.setup.command",
    ),
    "status": ("print what a running proxy is doing", "doi_proxy.features.status.command"),
    "explain": ("explain the answer that a client gets about a name", "doi_proxy.features.explain.command"),
    "verify": (
        "check the proof of an answer offline; exit status 0 if it holds",
        "doi_proxy.features.proof.command",
    ),
    "parse": (
        "tell whether a text is a DOI name, a handle, a prefix or none of them",
        "doi_proxy.features.texts.command",
    ),
    "mcp": ("run an MCP server, so AI assistants can check references", "doi_proxy.features.assistants.command"),
    "cache export": (
        "write records to a bundle: all, the names of lists, or the names under a prefix",
        "doi_proxy.features.bundles.store_commands",
    ),
    "cache import": (
        "read a bundle or files of Crossref or DataCite into the store; no older record replaces a newer one",
        "doi_proxy.features.bundles.command",
    ),
    "cache warm": (
        "fetch the names of lists that are not fresh in the store, as a bulk job",
        "doi_proxy.features.bundles.store_commands",
    ),
    "cache show": (
        "print the cached answers about names, or how many entries the store has, as JSON",
        "doi_proxy.features.admin.command",
    ),
    "cache refresh": ("fetch names from the upstream now, fresh or not", "doi_proxy.features.admin.command"),
    "cache purge": (
        "delete entries, also in every running proxy on the same store",
        "doi_proxy.features.admin.purge_command",
    ),
}
#: The help of each command, and the module whose COMMANDS have it. A command goes with the folder of its feature.
COMMANDS: Final = {
    name: (text, module) for name, (text, module) in _ALL.items() if find_spec(module.rpartition(".")[0]) is not None
}
#: The help of commands that have commands of their own.
GROUPS: Final = {"cache": "export, import, warm, show, refresh or purge the records of the store"}
