"""The chart in config/helm, rendered by Helm's own engine, makes the objects of config/kubernetes.

Not shown: what a cluster makes of them.
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from doi_proxy.system.version import VERSION
from tests.clients.installed import install, run_python
from tests.test_kubernetes import FOLDER as MANIFESTS_FOLDER
from tests.test_kubernetes import MANIFESTS, VERSIONS

pytestmark = [pytest.mark.repository, pytest.mark.nightly]

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "config/helm/doi-proxy"
SETTINGS: Final = (MANIFESTS_FOLDER / "doi-proxy.toml").read_text(encoding="utf-8")
#: What has no default.
NEEDED: Final = {"image": {"repository": "registry.example.org/doi-proxy"}, "settings": SETTINGS}
RENDER: Final = """
import json, os, helm_python
with helm_python.Chart.load(os.environ["CHART"]) as chart:
    try:
        print(json.dumps(chart.render(json.loads(os.environ["VALUES"]), name=os.environ["NAME"], namespace="library")))
    except helm_python.HelmError as error:
        print(json.dumps({"error": str(error)}))
"""
LINT: Final = """
import json, os, helm_python
print(json.dumps(helm_python.lint(os.environ["CHART"], json.loads(os.environ["VALUES"]))))
"""


@pytest.fixture(scope="module")
def helm() -> Path:
    """The interpreter of an environment with Helm's engine."""
    install("build/helm/.locked", "helm-python-sdk")
    return ROOT / "build/helm/bin/python"


def run(helm: Path, code: str, values: dict[str, Any], name: str = "doi-proxy") -> Any:
    return run_python(helm, code, {"CHART": str(CHART), "VALUES": json.dumps(values), "NAME": name})


def render(helm: Path, values: dict[str, Any], name: str = "doi-proxy") -> dict[str, Any]:
    """The objects of a release, by their kind, and the ConfigMap of lists as "Lists"."""
    files = run(helm, RENDER, values, name)
    objects = [yaml.safe_load(text) for path, text in files.items() if path.endswith(".yaml")]
    return {"Lists" if one["metadata"]["name"].endswith("-lists") else one["kind"]: one for one in objects}


def test_the_chart_makes_the_objects_of_the_manifests(helm: Path) -> None:
    expected = deepcopy({one["kind"]: one for one in MANIFESTS.values() if one["kind"] not in ("ConfigMap", "Secret")})
    expected["Lists"] = deepcopy(MANIFESTS["lists.yaml"])
    expected["Deployment"]["spec"]["template"]["spec"]["containers"][0]["image"] = (
        f"registry.example.org/doi-proxy:{VERSION}"
    )
    made = render(helm, NEEDED)
    assert made.pop("ConfigMap")["data"] == {"doi-proxy.toml": SETTINGS}
    # Kustomize puts a hash of the settings into the name of the ConfigMap instead.
    del made["Deployment"]["spec"]["template"]["metadata"]["annotations"]["checksum/settings"]
    assert made == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_other_values_make_valid_objects_that_find_each_other(helm: Path, version: str) -> None:
    values = {
        "image": {"repository": "registry.example.org/doi-proxy", "tag": "2"},
        "settings": 'x = "a: b"\n\ty = """{{ }}"""\n',
        "secret": "of-ours",
        "replicas": {"min": 3, "max": 4},
        "resources": {"requests": {"cpu": "1"}},
        "lists": {"deny.txt": "192.0.2.0/24  # a crawler\n"},
        "networkPolicy": {
            "from": [],
            "store": {"labels": {"app": "redis"}, "ports": [6379, 26379]},
            "extraEgress": [{"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}], "ports": [{"port": 3128}]}],
        },
    }
    made = render(helm, values, "doi")
    lists = made.pop("Lists")
    kubernetes_validate.validate(lists, version, strict=True)
    assert lists["data"] == values["lists"]
    for one in made.values():
        kubernetes_validate.validate(one, version, strict=True)
        assert one["metadata"]["name"] == "doi"
    egress = made["NetworkPolicy"]["spec"]["egress"]
    assert [one["port"] for one in egress[1]["ports"]] == [6379, 26379]
    assert egress[-1]["ports"] == [{"port": 3128}]
    assert made["ConfigMap"]["data"] == {"doi-proxy.toml": values["settings"]}
    pod = made["Deployment"]["spec"]["template"]
    assert pod["spec"]["volumes"][0]["configMap"]["name"] == "doi"
    assert pod["spec"]["volumes"][2]["secret"]["secretName"] == "of-ours"
    assert pod["spec"]["containers"][0]["image"] == "registry.example.org/doi-proxy:2"
    selected = made["Deployment"]["spec"]["selector"]["matchLabels"]
    assert pod["metadata"]["labels"] == selected == made["Service"]["spec"]["selector"]
    assert made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == selected
    assert made["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == "doi"


def test_changed_settings_replace_the_pods(helm: Path) -> None:
    first, second = (render(helm, NEEDED | {"settings": text})["Deployment"]["spec"]["template"] for text in "ab")
    assert first != second


def test_a_changed_list_of_networks_replaces_no_pod(helm: Path) -> None:
    first, second = (render(helm, NEEDED | {"lists": {"deny.txt": text}}) for text in ("192.0.2.1", "192.0.2.2"))
    assert first["Lists"] != second["Lists"]
    assert first["Deployment"] == second["Deployment"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "settings: the text of the settings file (--set-file settings=FILE)"),
        ({"settings": "a"}, "image.repository: the image in your registry"),
        (NEEDED | {"replicaCount": 3}, "additional properties 'replicaCount' not allowed"),
    ],
)
def test_a_value_that_is_missing_or_misspelt_is_named(helm: Path, values: dict[str, Any], words: str) -> None:
    assert words in run(helm, RENDER, values)["error"]


def test_helm_lint_has_no_warning(helm: Path) -> None:
    report = run(helm, LINT, NEEDED)
    assert report["errors"] == []
    # 1 is for information.
    assert [one for one in report["messages"] if one["severity"] > 1] == []
