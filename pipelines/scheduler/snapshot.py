"""The code of a pinned schedule as it was when it was registered: kept in the store, laid out below the root.

Modules are kept, byte for byte. Everything else of the project (data, a schema) is the project's own, by links, and so
as it is on the day of a run.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...digest import digest
from ...errors import InputError
from ..launcher.home import Home

_KIND: Final = "pinned code"
_FOLDER: Final = "schedules"


def keep_code(home: Home, project: Path) -> str:
    """Keep the modules of a project in the store; gives the digest that names them.

    Raises:
        InputError: They have more than 10 MB, or cannot be read.
    """
    from ..project.wheel import LARGEST, module_files  # late: what builds archives is a tenth of what a run imports

    try:
        modules = {path: (project / path).read_bytes() for path in module_files(project)}
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}", fix="make it readable") from None
    if (size := sum(map(len, modules.values()))) > LARGEST:
        raise InputError(
            f"the modules of {project} have {size / 1e6:.3g} MB, and a pinned schedule keeps {LARGEST / 1e6:.3g}",
            fix='leave what is no code to other files, or say version="follow"',
        )
    name = digest("drivetrain-pinned-v1", {path: hashlib.sha256(data).hexdigest() for path, data in modules.items()})
    home.store.context(_KIND, name, {path: base64.b64encode(data).decode() for path, data in modules.items()})
    return name


def lay_out(home: Home, project: Path, code: str) -> Path:
    """The folder of a project with the modules that were kept under a digest, and links to its other files.

    Raises:
        InputError: The store does not have them.
    """
    folder = home.root / _FOLDER / code / project.name
    if not folder.is_dir():
        kept = home.store.find_context(_KIND, code)
        if kept is None:
            raise InputError(f"the pinned code of {project} is not in this store", fix="register its schedule again")
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(dir=folder.parent.parent))
        try:
            for path, data in kept.properties.items():
                (staged / project.name / path).parent.mkdir(parents=True, exist_ok=True)
                (staged / project.name / path).write_bytes(base64.b64decode(data))
            with suppress(OSError):  # another process was faster
                staged.rename(folder.parent)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    if project.is_dir():
        _link_others(project, folder, home.root)
    return folder


def _link_others(project: Path, copy: Path, root: Path) -> None:
    for path in project.iterdir():
        target = copy / path.name
        if path.name.startswith((".", "__pycache__")) or path.suffix == ".py" or root.is_relative_to(path.resolve()):
            continue
        if target.is_dir() and not target.is_symlink():
            if path.is_dir():
                _link_others(path, target, root)
        elif not target.is_symlink():
            with suppress(FileExistsError):  # another process was faster
                target.symlink_to(path)
