"""`kubeflow.yaml`: what it says, and each thing wrong in it at its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivetrain.errors import InputError
from drivetrain.pipelines.kubeflow.settings import Affinity, ClusterSettings, EphemeralVolume, KeyReference, Toleration

BASE = "image: i:1\nartifacts: s3://b/x\nstore: {secret: s, key: k}\n"


def load(folder: Path, text: str) -> ClusterSettings:
    (folder / "kubeflow.yaml").write_text(text, encoding="utf-8")
    return ClusterSettings.load(folder)


def test_everything_that_may_stand_in_it(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        BASE
        + """
project: /srv/shop
scratch: 20GiB
namespace: ml
service_account: runner
ttl: 7d
deadline: 12h
api: {host: https://kfp.example, verify_ssl: false, timeout: 5, retries: 2}
defaults:
  env: {LEVEL: "3"}
  secrets: {TOKEN: {secret: shop, key: token}}
  secret_volumes: {/run/secrets: shop}
  configmaps: {REGION: {configmap: places, key: region}}
  configmap_volumes: {/etc/shop: places}
  pvcs: {/data: claim}
  volumes: {/big: {size: 100Gi, storage_class: fast, access_mode: ReadWriteMany}}
  shm: 8Gi
  node_selector: {pool: cpu}
  tolerations: [{key: spot, operator: Exists, effect: NoExecute, seconds: 30}]
  affinity: [{labels: [{key: zone, operator: In, values: [a, b]}], weight: 5}]
  labels: {team: shop}
  annotations: {note: hello}
  image_pull_secrets: [registry]
  image_pull_policy: Always
  gpu: amd.com/gpu
  run_as_user: 1000
  run_as_group: 100
  run_as_non_root: true
nodes:
  Trainer:
    node_selector: {gpu: h100}
    env: {LEVEL: "4", MORE: "1"}
    tolerations: []
""",
    )
    assert (found.project, found.scratch, found.ttl, found.deadline) == ("/srv/shop", "20Gi", 604800, 43200)
    assert (found.api.host, found.api.verify_ssl, found.api.timeout, found.api.retries) == (
        "https://kfp.example", False, 5.0, 2,
    )  # fmt: skip
    pod = found.pod()
    assert pod.secrets == (("TOKEN", KeyReference("shop", "token")),)
    assert pod.volumes == (("/big", EphemeralVolume("100Gi", "fast", "ReadWriteMany")),)
    assert pod.tolerations == (Toleration("spot", "Exists", "", "NoExecute", 30),)
    assert pod.affinity == (Affinity((("zone", "In", ("a", "b")),), 5),)
    trainer = found.pod("Trainer")
    assert trainer.node_selector == (("pool", "cpu"), ("gpu", "h100"))  # entry by entry
    assert trainer.env == (("LEVEL", "4"), ("MORE", "1"))
    assert trainer.tolerations == ()  # as a whole
    assert trainer.gpu == "amd.com/gpu"
    assert found.pod("Other") == pod


@pytest.mark.parametrize(
    ("text", "line", "says", "fix"),
    [
        ("image: i\nartifacts: s3://b\n", 1, "kubeflow.yaml has no store:", "add store:"),
        (BASE + "imgae: x\n", 4, "unknown key 'imgae'", "image"),
        (BASE + "defaults:\n  node_selectors: {a: b}\n", 5, "defaults: unknown key 'node_selectors'", "node_selector"),
        (BASE + "nodes:\n  A:\n    shm: lots\n", 6, "nodes.A.shm is not a size", "8Gi"),
        (BASE + "image: j\n", 4, "'image' appears twice", "keep one"),
        (BASE + "ttl: soon\n", 4, "ttl is not a time", "7d"),
        (BASE + "defaults: {env: {A: 3}}\n", 4, "defaults.env.A is not text: 3", 'quotes: "3"'),
        (BASE + "defaults: {env: {A: yes}}\n", 4, "defaults.env.A is not text", "quotes"),
        (BASE + "defaults: {env: {DRIVETRAIN_STORE: x}}\n", 4, "is set by drivetrain", "leave it out"),
        (BASE + "defaults: {env: {A: x}, secrets: {A: {secret: s, key: k}}}\n", 4, "A is set twice", "keep one"),
        (BASE + "defaults: {pvcs: {data: c}}\n", 4, "'data' is not a folder", "absolute"),
        (BASE + "defaults: {pvcs: {/d: c}, secret_volumes: {/d: s}}\n", 4, "mounted at /d", "another folder"),
        (BASE + "defaults: {pvcs: {/a: c, /b: c}}\n", 4, "c is mounted twice", "mount it once"),
        (BASE + "defaults: {secret_volumes: {/a: x.y}}\n", 4, "'x.y' cannot be the name of a volume", "hyphens"),
        (BASE + "defaults: {image_pull_policy: Sometimes}\n", 4, "is 'Sometimes'", "IfNotPresent"),
        (BASE + "defaults: {tolerations: [{effect: NoSchedule}]}\n", 4, "tolerates nothing", "Exists"),
        (BASE + "defaults: {affinity: [{labels: [{key: a, operator: In}]}]}\n", 4, "takes values", "Kubernetes"),
        (BASE + "api: {token: abc}\n", 4, "api.token is a secret", "token_env"),
        (BASE + "api: {hots: x}\n", 4, "api: unknown key 'hots'", "host"),
        ("image: i\nartifacts: data/x\nstore: {secret: s, key: k}\n", 2, "each pod has for itself", "s3://"),
        ("image: i\nartifacts: /data/x\nstore: {secret: s, key: k}\n", 2, "defaults mounts no volume", "pvcs"),
        ("image: i\nartifacts: s3://b\nstore: sqlite:///m.db\n", 3, "SQLite file", "PostgreSQL"),
        ("image: i\nartifacts: s3://b\nstore: .drivetrain/metadata.db\n", 3, "SQLite file", "Secret"),
        ("image: i\nartifacts: s3://b\nstore: postgresql://u:p@h/d\n", 3, "may hold a password", "secret: NAME"),
        (
            "image: i\nartifacts: s3://KEY:SECRET@b\nstore: {secret: s, key: k}\n",
            2,
            "artifacts holds a password",
            "Secrets",
        ),
        (BASE + "api: {host: 'https://u:p@x'}\n", 4, "api.host holds a password", "token_env"),
        (BASE + "api: {timeout: .nan}\n", 4, "api.timeout is not a number above 0", "2.5"),
        (BASE + "api: {retries: -1}\n", 4, "api.retries is not a whole number of 0 or more", "1000"),
        (BASE + "defaults: {run_as_user: -1}\n", 4, "is not a whole number of 0 or more", "1000"),
        (BASE + "defaults: {shm: 8ki}\n", 4, "is not a size: 8ki", "8Gi"),
        (BASE + "defaults: {shm: {a: 1}}\n", 4, "is not a size: more than one value", "8Gi"),
        (BASE + "defaults: {pvcs: {/drivetrain: c}}\n", 4, "has a volume of its own", "another folder"),
        (BASE + "defaults: {shm: 1Gi, pvcs: {/dev/shm: c}}\n", 4, "has a volume of its own", "another folder"),
        (BASE + "defaults: {pvcs: {/a/../drivetrain: c}}\n", 4, "is not a folder to mount at", "absolute"),
        ("image: [\n", 2, "not YAML", "correct the line"),
        ("- image\n", 1, "kubeflow.yaml must be `key: value`", "key: value"),
    ],
)
def test_what_is_wrong_is_told_at_its_line(tmp_path: Path, text: str, line: int, says: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    assert says in caught.value.message
    assert fix in (caught.value.fix or "")
    assert caught.value.where == f"{tmp_path / 'kubeflow.yaml'}:{line}"


def test_labels_and_variables_may_be_empty(tmp_path: Path) -> None:
    """Roles of nodes are labels without a value."""
    role = "node-role.kubernetes.io/gpu"
    found = load(tmp_path, BASE + f'defaults: {{node_selector: {{{role}: ""}}, env: {{A: ""}}}}\n').pod()
    assert (found.node_selector, found.env) == (((role, ""),), (("A", ""),))


def test_a_folder_of_a_volume_holds_the_payloads(tmp_path: Path) -> None:
    text = BASE.replace("s3://b/x", "/data/shop/") + "defaults: {pvcs: {/data: claim}}\n"
    assert load(tmp_path, text).artifacts == "/data/shop"


def test_a_project_without_it_is_told_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no kubeflow\.yaml") as caught:
        ClusterSettings.load(tmp_path)
    assert "image:" in (caught.value.fix or "")
    (tmp_path / "kubeflow.yaml").write_text("")
    with pytest.raises(InputError, match="is empty"):
        ClusterSettings.load(tmp_path)
