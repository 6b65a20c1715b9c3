"""Extensions: which distribution an op's code is in, and whether what a bundle requires is installed here.

A bundle may be untrusted. It names distributions, and never chooses what is imported. An op `acme.clip` is
looked up under the entry point `acme` of the group `drivetrain.ops`, among what is installed. That entry point is
loaded only if its distribution has the name and version that the bundle names: code that someone chose to install.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, Final

from ...errors import InputError
from .._caller import caller

GROUP: Final = "drivetrain.ops"
"""The group of entry points under which distributions offer ops: the name is the ops' namespace, the value a module."""

_OP: Final = re.compile(r"([a-z][a-z0-9_]{0,63})\.[A-Za-z_][A-Za-z0-9_]{0,63}")
_DISTRIBUTION: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,63}")
# Names of XLA's own calls begin so.
_RESERVED: Final = frozenset({"chlo", "drivetrain", "jax", "jaxlib", "mhlo", "sdy", "stablehlo", "xla"})


@dataclass(frozen=True)
class Extension:
    """Where ops come from that drivetrain does not hold.

    Attributes:
        namespace: What their names begin with: `acme` of `acme.clip`; the name of the entry point.
        distribution: What `pip install` calls it.
        version: Of the distribution.
        installed: False where `use` declared it in this process.
    """

    namespace: str
    distribution: str
    version: str
    installed: bool = True


@dataclass(frozen=True)
class Requirement:
    """One op that a bundle needs from outside, as its manifest says.

    Attributes:
        op: The op's name.
        distribution: The distribution that registers it.
        version: The version that was there when the bundle was made.
        entry_point: The entry point of the group `drivetrain.ops`; None where the op was of no installed distribution.
    """

    op: str
    distribution: str
    version: str
    entry_point: str | None

    @classmethod
    def of(cls, op: str, extension: Extension) -> Requirement:
        """The requirement of an op of this process."""
        point = extension.namespace if extension.installed else None
        return cls(op, extension.distribution, extension.version, point)

    def to_json(self) -> dict[str, str | None]:
        """The requirement as an entry of the manifest's `required_extensions`."""
        return asdict(self)


_LOCAL: Final[dict[str, Extension]] = {}


def use(namespace: str, *, distribution: str, version: str) -> Extension:
    """Declare that this process's own files hold the ops of a namespace, before they are registered.

    For a project's file during development. Bundles record the names given here, so that loading one elsewhere says
    what is missing; there, the file is imported first, or the ops are an installed distribution.

    Args:
        namespace: What the ops' names begin with.
        distribution: What the distribution is or will be called.
        version: Its version.

    Raises:
        InputError: One of the names is not valid.
    """
    if not _OP.fullmatch(f"{namespace}.x") or namespace in _RESERVED:
        raise InputError(
            f"{namespace!r:.80} is not a namespace for ops",
            fix="use lower-case letters, digits and _, and no name of XLA's",
            where=caller(),
        )
    if not _DISTRIBUTION.fullmatch(distribution) or not _VERSION.fullmatch(version):
        raise InputError(
            f"{distribution!r:.80} {version!r:.40} is not a distribution and version",
            fix="name them as in pyproject.toml",
            where=caller(),
        )
    _LOCAL[namespace] = Extension(namespace, distribution, version, installed=False)
    return _LOCAL[namespace]


def namespace_of(op: str) -> str:
    """`acme` of `acme.clip`.

    Raises:
        InputError: The name has no namespace, or one that is XLA's.
    """
    match = _OP.fullmatch(op)
    if match is None or match[1] in _RESERVED:
        raise InputError(
            f"an op cannot be named {op!r:.80}", fix="name it like acme.clip: whose it is, a dot, what", where=caller()
        )
    return match[1]


def owner(op: str, module: str) -> Extension:
    """The extension that an op registered by a module belongs to.

    Raises:
        InputError: Its namespace is declared neither by `use` nor by an installed distribution with that module.
    """
    namespace = namespace_of(op)
    if namespace in _LOCAL:
        return _LOCAL[namespace]
    for point, extension in _installed(namespace):
        if point.module.partition(".")[0] == module.partition(".")[0]:
            return extension
    raise InputError(
        f"op {op!r} belongs to no distribution: no entry point {namespace!r} of {GROUP} leads to the module {module}",
        fix=f"install it with that entry point, or first custom_ops.use({namespace!r}, distribution=…, version=…)",
        where=caller(),
    )


def _installed(namespace: str) -> Iterable[tuple[metadata.EntryPoint, Extension]]:
    for point in metadata.entry_points(group=GROUP, name=namespace):
        if point.dist is not None:
            yield point, Extension(namespace, point.dist.name, point.dist.version)


def requirements(listed: Any) -> tuple[Requirement, ...]:  # Any: JSON from a manifest, checked here
    """What a manifest lists under `required_extensions`.

    Raises:
        ValueError: It is not of that form, or a name could not be one.
    """
    if not isinstance(listed, list):
        raise ValueError("required_extensions is not a list")
    required = []
    for item in listed:
        if not isinstance(item, dict) or item.keys() != {"op", "distribution", "version", "entry_point"}:
            raise ValueError(f"the required extension {item!r:.80}")
        op, distribution, version, point = (item[k] for k in ("op", "distribution", "version", "entry_point"))
        named = isinstance(op, str) and _OP.fullmatch(op)
        if not (
            named
            and named[1] not in _RESERVED
            and point in (named[1], None)
            and isinstance(distribution, str)
            and _DISTRIBUTION.fullmatch(distribution)
            and isinstance(version, str)
            and _VERSION.fullmatch(version)
        ):
            raise ValueError(f"the required extension {item!r:.80}")
        required.append(Requirement(op, distribution, version, point))
    if len({requirement.op for requirement in required}) != len(required):
        raise ValueError("it requires an op twice")
    return tuple(required)


def import_extension(requirement: Requirement) -> None:
    """Import the installed extension that a requirement names, so that it registers its ops.

    Raises:
        InputError: It is not installed, is of a version that does not fit, or fails to import.
    """
    namespace = requirement.op.partition(".")[0]
    others = []
    for point, extension in _installed(namespace):
        if _normal(extension.distribution) != _normal(requirement.distribution):
            others.append(f"{extension.distribution} {extension.version}")
            continue
        check_version(requirement, extension)
        try:
            point.load()
        except Exception as error:  # the extension's own code failed: whatever it is, name the extension
            raise InputError(
                f"{extension.distribution} {extension.version}, which op {requirement.op!r} needs, cannot be imported: "
                f"{type(error).__name__}: {error!s:.200}",
                fix=f"reinstall it: pip install --force-reinstall {extension.distribution}",
            ) from error
        return
    raise _absent(requirement, others)


def check_version(requirement: Requirement, extension: Extension) -> None:
    """Raise InputError unless the extension here is the one required, in a version that fits.

    What fits is what semantic versioning calls compatible: the same major version (the same minor one while the major
    is 0) and no older than recorded. Versions that are not dotted numbers must be equal.
    """
    if _normal(extension.distribution) != _normal(requirement.distribution):
        raise _absent(requirement, [f"{extension.distribution} {extension.version}"])
    if not _fits(requirement.version, extension.version):
        raise InputError(
            f"op {requirement.op!r} needs {requirement.distribution} {requirement.version}, "
            f"and {extension.version} is {'installed' if extension.installed else 'in use'} here",
            fix=f"{_install(requirement)}, or run the step that made the bundle",
        )


def _absent(requirement: Requirement, others: list[str]) -> InputError:
    beside = f" ({', '.join(others)} has ops of that name)" if others else ""
    what = f"op {requirement.op!r} needs {requirement.distribution} {requirement.version}"
    if requirement.entry_point is None:
        return InputError(
            f"{what}, a file in use where the bundle was made, which is neither in use nor installed here{beside}",
            fix="first import the file that calls custom_ops.use, or install it as a distribution",
        )
    return InputError(
        f"{what}, which is not installed here{beside}",
        fix=f"{_install(requirement)}, if you trust it: it is code that will run",
    )


def _install(requirement: Requirement) -> str:
    return f"pip install '{requirement.distribution}=={requirement.version}'"


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _fits(recorded: str, installed: str) -> bool:
    wanted, there = _release(recorded), _release(installed)
    if wanted is None or there is None:
        return recorded == installed
    fixed = 1 if wanted[0] else 2
    return wanted[:fixed] == there[:fixed] and there >= wanted


def _release(version: str) -> tuple[int, ...] | None:
    """The numbers of a version, trailing zeros filled in; what follows them (rc1, .dev0, +local) does not count."""
    numbers = re.match(r"\d+(\.\d+)*(?![\d!])", version)
    if numbers is None:
        return None
    parts = [int(part) for part in numbers[0].split(".")]
    return tuple(parts + [0] * (4 - len(parts)))
