"""`kubeflow.yaml`: the facts of a cluster that a pipeline needs and does not name, read strictly."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ...addresses import scheme_of
from ...errors import InputError
from ...redaction import holds_credentials
from ...yaml_lines import YamlValue, read_yaml
from .connection import ApiSettings

NAME = "kubeflow.yaml"
Texts = tuple[tuple[str, str], ...]
SCRATCH = "/drivetrain"
"""Where a pod works: its root is a folder in it."""
SHM = "/dev/shm"  # noqa: S108 - not a file of ours


@dataclass(frozen=True)
class KeyReference:
    """A key of a Secret or of a ConfigMap of the namespace."""

    name: str
    key: str


@dataclass(frozen=True)
class EphemeralVolume:
    """An ephemeral volume, made with the pod and gone with it.

    Attributes:
        size: As Kubernetes writes it.
        storage_class: The cluster's default one where empty.
        access_mode: How it may be mounted.
    """

    size: str
    storage_class: str = ""
    access_mode: str = "ReadWriteOnce"


@dataclass(frozen=True)
class Toleration:
    """A taint of machines that pods tolerate."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None


@dataclass(frozen=True)
class Affinity:
    """Nodes that pods need (weight 0) or would rather have, by their labels: (key, operator, values)."""

    labels: tuple[tuple[str, str, tuple[str, ...]], ...]
    weight: int = 0


@dataclass(frozen=True)
class PodSettings:
    """How pods are made; each part may differ from node to node.

    Attributes:
        env: Environment variables.
        secrets: Environment variables out of Secrets: what `dt.secret(NAME)` finds.
        secret_volumes: Folder -> Secret, a file for each key.
        configmaps: Environment variables out of ConfigMaps.
        configmap_volumes: Folder -> ConfigMap.
        pvcs: Folder -> PersistentVolumeClaim that exists.
        volumes: Folder -> ephemeral volume.
        shm: Size of /dev/shm.
        node_selector: Labels that a pod's node must have.
        tolerations: Taints that pods tolerate.
        affinity: Nodes that pods need or prefer.
        labels: Of the pods.
        annotations: Of the pods.
        image_pull_secrets: Secrets that the image is pulled with.
        image_pull_policy: Always, IfNotPresent or Never.
        gpu: What an accelerator is called in the cluster.
        run_as_user: User id of the container.
        run_as_group: Group id of it.
        run_as_non_root: Whether it must not be root.
    """

    env: Texts = ()
    secrets: tuple[tuple[str, KeyReference], ...] = ()
    secret_volumes: Texts = ()
    configmaps: tuple[tuple[str, KeyReference], ...] = ()
    configmap_volumes: Texts = ()
    pvcs: Texts = ()
    volumes: tuple[tuple[str, EphemeralVolume], ...] = ()
    shm: str = ""
    node_selector: Texts = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[Affinity, ...] = ()
    labels: Texts = ()
    annotations: Texts = ()
    image_pull_secrets: tuple[str, ...] = ()
    image_pull_policy: str = ""
    gpu: str = "nvidia.com/gpu"
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None


@dataclass(frozen=True)
class ClusterSettings:
    """What `kubeflow.yaml` says.

    Attributes:
        image: The pipeline's image.
        artifacts: URL below which payloads lie, e.g. s3://bucket/flights; or a folder in a volume that all pods mount.
        store: The key of a Secret that holds the store's URL.
        project: The project's folder in the image; `/app/` and the folder's name where empty.
        scratch: Size of the volume that pods work in; no bound where empty.
        namespace: Of the pods, where the API does not say it.
        service_account: That pods run as.
        ttl: Seconds after which the cluster forgets a run that has ended.
        deadline: Seconds after which it ends a run.
        api: How the API is reached.
        defaults: The settings of every pod.
        nodes: Node -> the settings of its pods: `defaults` with the node's own over them.
        file: The file that they were read from; None where they were made in code.
        lines: Entry -> its "file:line", for errors.
    """

    image: str
    artifacts: str
    store: KeyReference
    project: str = ""
    scratch: str = ""
    namespace: str = ""
    service_account: str = ""
    ttl: int | None = None
    deadline: int | None = None
    api: ApiSettings = field(default_factory=ApiSettings)
    defaults: PodSettings = field(default_factory=PodSettings)
    nodes: Mapping[str, PodSettings] = field(default_factory=dict)
    file: Path | None = None
    lines: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def load(cls, project: Path) -> ClusterSettings:
        """The settings of a project's folder, or of the file itself.

        Raises:
            InputError: There are none, or something in them is wrong; names its line.
        """
        file = project / NAME if project.is_dir() else project
        if not file.exists():
            raise InputError(
                f"{project} has no {NAME}",
                fix="write one beside pipeline.py with image:, artifacts: and store: (docs/kubeflow.md)",
            )
        return _settings(_read(file), file)

    def pod(self, node: str = "") -> PodSettings:
        """The settings of a node's pods; of the pipeline's own pods where none is named."""
        return self.nodes.get(node, self.defaults)

    def where(self, name: str) -> str | None:
        """The "file:line" of an entry."""
        return self.lines.get(name, str(self.file) if self.file else None)


def _read(file: Path) -> YamlValue:
    try:
        root = read_yaml(file.read_text(encoding="utf-8"), str(file), name=NAME)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}", fix="see docs/kubeflow.md for what it holds") from None
    if root is None:
        raise InputError(f"{file} is empty", fix="see docs/kubeflow.md for what it holds")
    return root


def _settings(top: YamlValue, file: Path) -> ClusterSettings:
    keys = [each.name for each in fields(ClusterSettings) if each.name not in ("file", "lines")]
    entries = top.mapping(keys, required=("image", "artifacts", "store"))
    defaults = _pod(entries["defaults"], PodSettings()) if "defaults" in entries else PodSettings()
    nodes = entries["nodes"].mapping() if "nodes" in entries else {}
    arguments: dict[str, Any] = {}  # Any: by the field's type
    for name in ("project", "namespace", "service_account"):
        if name in entries:
            arguments[name] = entries[name].string()
    for name in ("ttl", "deadline"):
        if name in entries:
            arguments[name] = _seconds(entries[name])
    if "scratch" in entries:
        arguments["scratch"] = _size(entries["scratch"])
    if "api" in entries:
        arguments["api"] = _api(entries["api"])
    settings = ClusterSettings(
        image=entries["image"].string(),
        artifacts=_artifacts(entries["artifacts"]),
        store=_store(entries["store"]),
        defaults=defaults,
        nodes={name: _pod(value, defaults) for name, value in nodes.items()},
        file=file,
        lines={name: value.where for name, value in (*entries.items(), *((f"nodes.{n}", p) for n, p in nodes.items()))},
        **arguments,
    )
    _mounted(settings)
    return settings


def _store(value: YamlValue) -> KeyReference:
    text = value.node.value if isinstance(value.node.value, str) else ""
    if re.match(r"(sqlite:|file:|[./~])", text) or text.endswith(".db"):
        raise value.error(
            "the store is a SQLite file, which the pods of a cluster cannot share",
            "keep it in PostgreSQL, its URL in a Secret, and write store: {secret: NAME, key: KEY}",
        )
    if text:
        raise value.error(
            "the store is named by its URL, which may hold a password: pods read it from a Secret",
            "put the URL into a Secret of the namespace, and write store: {secret: NAME, key: KEY}",
        )
    return _key(value, "secret")


def _artifacts(value: YamlValue) -> str:
    url = value.string().rstrip("/")
    apart = url.startswith("file:") or not scheme_of(url).shared
    if apart or ("://" not in url and not url.startswith("/")):
        raise value.error(
            f"the payloads would be in {url!r}, which each pod has for itself",
            "write a URL that all pods reach, e.g. s3://bucket/folder, or a folder below one of defaults.pvcs",
        )
    _refuse_password(value, url)
    return url


def _refuse_password(value: YamlValue, url: str) -> None:
    if holds_credentials(url):
        raise value.error(
            f"{value.name} holds a password, which has no place in a file of the project",
            "leave out what is before the @: Secrets bring it to pods, token_env: or cookies_env: to KFP",
        )


def _mounted(settings: ClusterSettings) -> None:
    """See that payloads in a folder lie in a volume of every pod."""
    if "://" in settings.artifacts:
        return
    for name, pod in [("defaults", settings.defaults), *((f"nodes.{n}", pod) for n, pod in settings.nodes.items())]:
        if not any(f"{settings.artifacts}/".startswith(f"{folder.rstrip('/')}/") for folder, _ in pod.pvcs):
            raise InputError(
                f"the payloads are in {settings.artifacts}, where {name} mounts no volume",
                fix="add defaults: {pvcs: {FOLDER: CLAIM}} with that folder or one above it",
                where=settings.where("artifacts"),
            )


def _api(section: YamlValue) -> ApiSettings:
    kinds = {each.name: type(each.default) for each in fields(ApiSettings)}
    arguments: dict[str, Any] = {}  # Any: by the field's type
    readers: Mapping[type, Callable[[YamlValue], object]] = {
        str: YamlValue.string, bool: YamlValue.boolean, float: _positive, int: _natural,
    }  # fmt: skip
    for name, value in section.mapping().items():
        if name in ("token", "cookies", "iap_other_client_secret"):
            raise value.error(
                f"{value.name} is a secret, which has no place in a file of the project",
                f"write {name}_env: with the name of a variable that holds it",
            )
    for name, value in section.mapping(list(kinds)).items():
        arguments[name] = readers[kinds[name]](value)
        if name in ("host", "ui_host"):
            _refuse_password(value, arguments[name])
    return ApiSettings(**arguments)


def _key(value: YamlValue, kind: str) -> KeyReference:
    entries = value.mapping((kind, "key"), required=(kind, "key"))
    return KeyReference(entries[kind].string(), entries["key"].string())


def _folder(name: str, value: YamlValue) -> str:
    if not re.fullmatch(r"/[^:]*[^:/]", name) or posixpath.normpath(name) != name or name.startswith("//"):
        raise value.error(f"{name!r} is not a folder to mount at", "write an absolute path, e.g. /data")
    return name


def _variable(name: str, value: YamlValue) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", name):
        raise value.error(f"{name!r} is not a name of a variable", "use letters, digits and _")
    if name.startswith("DRIVETRAIN_") and not name.startswith("DRIVETRAIN_PARAM_"):
        raise value.error(f"{name} is set by drivetrain itself", "leave it out")
    return name


def _volume(value: YamlValue) -> EphemeralVolume:
    entries = value.mapping(("size", "storage_class", "access_mode"), required=("size",))
    return EphemeralVolume(
        _size(entries["size"]),
        entries["storage_class"].string() if "storage_class" in entries else "",
        entries["access_mode"].choice("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod")
        if "access_mode" in entries
        else "ReadWriteOnce",
    )


def _toleration(value: YamlValue) -> Toleration:
    entries = value.mapping(("key", "operator", "value", "effect", "seconds"))
    toleration = Toleration(
        entries["key"].string() if "key" in entries else "",
        entries["operator"].choice("Equal", "Exists") if "operator" in entries else "Equal",
        entries["value"].string() if "value" in entries else "",
        entries["effect"].choice("NoSchedule", "PreferNoSchedule", "NoExecute") if "effect" in entries else "",
        _natural(entries["seconds"]) if "seconds" in entries else None,
    )
    if toleration.operator == "Exists" and toleration.value:
        raise value.error("a toleration with operator Exists takes no value", "leave value: out, or write Equal")
    if toleration.operator == "Equal" and not toleration.key:
        raise value.error("a toleration without a key tolerates nothing", "name the key, or write operator: Exists")
    if toleration.seconds is not None and toleration.effect != "NoExecute":
        raise value.error("seconds are for the effect NoExecute", "write effect: NoExecute, or leave seconds: out")
    return toleration


def _affinity(value: YamlValue) -> Affinity:
    entries = value.mapping(("labels", "weight"), required=("labels",))
    labels = []
    for entry in entries["labels"].items():
        requirement = entry.mapping(("key", "operator", "values"), required=("key", "operator"))
        sign = requirement["operator"].choice("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
        values = _strings(requirement["values"]) if "values" in requirement else ()
        if bool(values) == (sign in ("Exists", "DoesNotExist")):
            raise entry.error(
                f"the operator {sign} takes {'no values' if values else 'values'}", "see Kubernetes' docs"
            )
        labels.append((requirement["key"].string(), sign, values))
    weight = _natural(entries["weight"]) if "weight" in entries else 0
    if not 0 <= weight <= 100:
        raise entries["weight"].error(f"the weight is {weight}", "write 1 to 100, or leave it out for what is needed")
    return Affinity(tuple(labels), weight)


def _strings(value: YamlValue) -> tuple[str, ...]:
    return tuple(item.string() for item in value.items())


def _natural(value: YamlValue) -> int:
    number = value.scalar()
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise value.error(f"{value.name} is not a whole number of 0 or more", "write e.g. 1000")
    return number


def _positive(value: YamlValue) -> float:
    number = value.scalar()
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number < math.inf:
        raise value.error(f"{value.name} is not a number above 0", "write e.g. 2.5")
    return float(number)


def _seconds(value: YamlValue) -> int:
    """The seconds of a time such as 90s, 30m, 12h or 7d."""
    match = re.fullmatch(r"([0-9]{1,7})([smhd])", value.text()) if value.is_scalar else None
    if match is None or not int(match[1]):
        raise value.error(f"{value.name} is not a time", "write 90s, 30m, 12h or 7d")
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def _size(value: YamlValue) -> str:
    """A size as Kubernetes writes it: 8Gi, 500M; ours (8GB, 8GiB) are taken too."""
    text = value.text() if value.is_scalar else "more than one value"
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGTPE]i|[kMGTPE])?B?", text)
    if match is None or not float(match[1]):
        raise value.error(f"{value.name} is not a size: {text}", "write e.g. 8Gi or 500M")
    return match[1] + (match[2] or "")


_MAPS: Mapping[str, Callable[[str, YamlValue], tuple[str, Any]]] = {  # Any: by the field's type
    "env": lambda name, value: (_variable(name, value), value.string(empty=True)),
    "secrets": lambda name, value: (_variable(name, value), _key(value, "secret")),
    "secret_volumes": lambda name, value: (_folder(name, value), value.string()),
    "configmaps": lambda name, value: (_variable(name, value), _key(value, "configmap")),
    "configmap_volumes": lambda name, value: (_folder(name, value), value.string()),
    "pvcs": lambda name, value: (_folder(name, value), value.string()),
    "volumes": lambda name, value: (_folder(name, value), _volume(value)),
    "node_selector": lambda name, value: (name, value.string(empty=True)),
    "labels": lambda name, value: (name, value.string(empty=True)),
    "annotations": lambda name, value: (name, value.string(empty=True)),
}
_OTHERS: Mapping[str, Callable[[YamlValue], Any]] = {
    "shm": _size,
    "tolerations": lambda value: tuple(map(_toleration, value.items())),
    "affinity": lambda value: tuple(map(_affinity, value.items())),
    "image_pull_secrets": _strings,
    "image_pull_policy": lambda value: value.choice("Always", "IfNotPresent", "Never"),
    "gpu": YamlValue.string,
    "run_as_user": _natural,
    "run_as_group": _natural,
    "run_as_non_root": YamlValue.boolean,
}


def _pod(section: YamlValue, base: PodSettings) -> PodSettings:
    """A base with a section over it: maps are merged entry by entry, all else is replaced."""
    arguments: dict[str, Any] = {}  # Any: by the field's type
    for name, value in section.mapping([*_MAPS, *_OTHERS]).items():
        if name in _MAPS:
            entries = dict(_MAPS[name](key, entry) for key, entry in value.mapping().items())
            arguments[name] = tuple((dict(getattr(base, name)) | entries).items())
        else:
            arguments[name] = _OTHERS[name](value)
    pod = replace(base, **arguments)
    mounts = [
        folder
        for part in ("secret_volumes", "configmap_volumes", "pvcs", "volumes")
        for folder, _ in getattr(pod, part)
    ]
    taken = (SCRATCH, SHM) if pod.shm else (SCRATCH,)
    for folder in mounts:
        if folder in taken:
            raise section.error(f"{folder} is where a pod has a volume of its own", "mount it at another folder")
        if mounts.count(folder) > 1:
            raise section.error(f"two things are mounted at {folder}", "give one of them another folder")
    volumes = [name for part in ("secret_volumes", "configmap_volumes", "pvcs") for _, name in getattr(pod, part)]
    for name in volumes:
        # KFP calls the volume like what is in it.
        if volumes.count(name) > 1:
            raise section.error(
                f"{name} is mounted twice, and KFP makes two volumes of one name of that", "mount it once"
            )
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
            raise section.error(
                f"{name!r} cannot be the name of a volume, as which KFP takes it",
                "mount one whose name has small letters, digits and hyphens only, 63 at most",
            )
    names = [variable for part in ("env", "secrets", "configmaps") for variable, _ in getattr(pod, part)]
    for variable in names:
        if names.count(variable) > 1:
            raise section.error(f"the variable {variable} is set twice", "keep one of env, secrets and configmaps")
    return pod
