"""The manifests in config/kubernetes are valid, and agree with each other, with the settings and with the image.

Not shown: what a cluster makes of them.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from doi_proxy.assembly.settings import Settings, load
from doi_proxy.server.http_server import GRACE
from doi_proxy.system.options import ENV_PREFIX
from doi_proxy.system.version import VERSION
from tests.test_packaging import all_of, stages, variables

pytestmark = [pytest.mark.repository, pytest.mark.nightly]

FOLDER: Final = Path(__file__).resolve().parents[1] / "config/kubernetes"
#: The oldest version of Kubernetes that kustomization.yaml names, and the newest whose schemas are here.
VERSIONS: Final = ("1.27", kubernetes_validate.latest_version())
#: What a process needs besides its memory tier and its prepared answers, in bytes.
PROGRAM_BYTES: Final = 192 * 1024**2
DEADLINE: Final = 60


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return found


KUSTOMIZATION: Final = document("kustomization.yaml")
MANIFESTS: Final = {name: document(name) for name in KUSTOMIZATION["resources"]}
POD: Final = MANIFESTS["deployment.yaml"]["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]
VARIABLES: Final[dict[str, str]] = {one["name"]: one["value"] for one in CONTAINER["env"] if "value" in one}


def settings(tmp_path: Path) -> Settings:
    """The settings of a replica, with the variables of the image."""
    secret = tmp_path / "store-url"
    secret.write_text(MANIFESTS["secret.yaml"]["stringData"]["store-url"])
    image = {name: value for name, value in variables(stages()[-1]).items() if name.startswith(ENV_PREFIX)}
    environment = {**image, **VARIABLES, "DOI_PROXY_STORE_URL_FILE": str(secret)}
    return load({}, environment, FOLDER / "doi-proxy.toml")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_is_valid_by_the_schema_of_its_kind(name: str, version: str) -> None:
    kubernetes_validate.validate(MANIFESTS[name], version, strict=True)


def test_the_schema_refuses_a_misspelt_field() -> None:
    wrong = {**MANIFESTS["service.yaml"], "sepc": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed: https://kubernetes.io/docs/tasks/tools/"
)
def test_kustomize_puts_the_manifests_together() -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, timeout=DEADLINE, check=True
    )
    made = list(yaml.safe_load_all(done.stdout))
    for one in made:
        kubernetes_validate.validate(one, VERSIONS[-1], strict=True)
    assert {one["kind"] for one in made} == {one["kind"] for one in MANIFESTS.values()} | {"ConfigMap"}
    maps = [one["metadata"]["name"] for one in made if one["kind"] == "ConfigMap"]
    (settings_file,) = (name for name in maps if name != "doi-proxy-lists")
    (pod,) = (one["spec"]["template"]["spec"] for one in made if one["kind"] == "Deployment")
    assert pod["volumes"][0]["configMap"]["name"] == settings_file != "doi-proxy"
    assert pod["containers"][0]["image"] == f"registry.example.org/doi-proxy:{VERSION}"


def test_every_manifest_of_the_folder_is_in_the_kustomization() -> None:
    assert {path.name for path in FOLDER.glob("*.yaml")} == {*MANIFESTS, "kustomization.yaml"}
    (generated,) = KUSTOMIZATION["configMapGenerator"]
    assert [(FOLDER / name).is_file() for name in generated["files"]] == [True]


def test_all_manifests_select_the_pods_of_the_deployment() -> None:
    labels = POD["metadata"]["labels"]
    spread = [one["labelSelector"] for one in POD["spec"]["topologySpreadConstraints"]]
    selectors = [
        MANIFESTS["deployment.yaml"]["spec"]["selector"],
        MANIFESTS["pod-disruption-budget.yaml"]["spec"]["selector"],
        MANIFESTS["network-policy.yaml"]["spec"]["podSelector"],
        {"matchLabels": MANIFESTS["service.yaml"]["spec"]["selector"]},
        *spread,
    ]
    assert [one for one in selectors if one != {"matchLabels": labels}] == []
    target = MANIFESTS["horizontal-pod-autoscaler.yaml"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", MANIFESTS["deployment.yaml"]["metadata"]["name"])


def test_the_replicas_read_the_mounted_files(tmp_path: Path) -> None:
    mounts = {one["name"]: one["mountPath"] for one in CONTAINER["volumeMounts"]}
    files = {name: VARIABLES[f"DOI_PROXY_{name}"] for name in ("CONFIG", "STORE_URL_FILE")}
    assert files == {
        "CONFIG": f"{mounts['settings']}/doi-proxy.toml",
        "STORE_URL_FILE": f"{mounts['secrets']}/store-url",
    }
    assert {volume["name"] for volume in POD["spec"]["volumes"]} == set(mounts)
    # Replicas share their records and their budget only through a server.
    assert settings(tmp_path).store_url.startswith("valkey://")


def test_the_rate_is_divided_by_the_most_replicas(tmp_path: Path) -> None:
    assert settings(tmp_path).instances == MANIFESTS["horizontal-pod-autoscaler.yaml"]["spec"]["maxReplicas"]


def test_the_probes_and_the_services_reach_the_port_that_is_served(tmp_path: Path) -> None:
    (port,) = CONTAINER["ports"]
    assert (settings(tmp_path).host, settings(tmp_path).port) == ("0.0.0.0", port["containerPort"])
    probes = {name: CONTAINER[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }
    ingress = [one["port"] for rule in MANIFESTS["network-policy.yaml"]["spec"]["ingress"] for one in rule["ports"]]
    service = [one["targetPort"] for one in MANIFESTS["service.yaml"]["spec"]["ports"]]
    assert {*ingress, *service, *(probe["port"] for probe in probes.values())} == {port["name"]}
    assert POD["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])


def test_a_pod_has_the_time_to_end() -> None:
    program, seconds = CONTAINER["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    assert float(seconds) + GRACE < POD["spec"]["terminationGracePeriodSeconds"]


def test_the_memory_of_a_pod_suffices_for_the_settings(tmp_path: Path) -> None:
    found = settings(tmp_path)
    limit = int(CONTAINER["resources"]["limits"]["memory"].removesuffix("Mi")) * 1024**2
    assert limit >= found.cache_memory_bytes + found.express_memory_bytes + PROGRAM_BYTES


def test_the_pods_are_confined_and_run_as_the_user_of_the_image() -> None:
    pod = POD["spec"]["securityContext"]
    assert [f"{pod['runAsUser']}:{pod['runAsGroup']}"] == all_of(stages()[-1], "USER")
    assert pod["runAsNonRoot"] is True
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert POD["spec"]["automountServiceAccountToken"] is False
