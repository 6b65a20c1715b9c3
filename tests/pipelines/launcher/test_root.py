"""One root folder for a project, wherever one stands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from drivetrain.errors import InputError
from drivetrain.pipelines import Home, find_root


@pytest.fixture(autouse=True)
def _nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRIVETRAIN_ROOT")


@pytest.fixture
def ws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is nobody's project, below a home folder, where a search ends; the working directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "ws"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def holding(folder: Path) -> Path:
    """A root with a store, in a folder that is created."""
    Home(folder / ".drivetrain").close()
    return folder / ".drivetrain"


def project(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.py").touch()
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def test_what_is_named_counts_in_this_order(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = project(ws / "shop", pyproject_toml='[tool.drivetrain]\nroot = "../runs"\n')
    holding(shop)
    located = find_root(shop)
    assert (located.root, located.named_by) == (ws / "runs", str(shop / "pyproject.toml"))
    monkeypatch.setenv("DRIVETRAIN_ROOT", "variable")
    located = find_root(shop)
    assert (located.root, located.named_by) == (ws / "variable", "DRIVETRAIN_ROOT")
    located = find_root(shop, root="option")
    assert (located.root, located.named_by, located.others) == (ws / "option", "--root", ())
    assert find_root(shop, root="../up").root == ws.parent / "up"
    monkeypatch.setenv("DRIVETRAIN_ROOT", "")
    assert find_root(shop).root == ws / "runs"
    with pytest.raises(InputError, match="--root names no folder"):
        find_root(shop, root="")


def test_a_new_root_lies_beside_the_nearest_pyproject_or_git_else_in_the_project(ws: Path) -> None:
    shop = project(ws / "bare" / "shop")
    assert find_root(shop).root == shop / ".drivetrain"
    (ws / "bare" / ".git").write_text("gitdir: elsewhere\n")  # as in a worktree
    assert find_root(shop).root == ws / "bare" / ".drivetrain"
    (shop / "pyproject.toml").touch()
    assert find_root(shop).root == shop / ".drivetrain"
    assert find_root().root == ws / ".drivetrain"
    assert not list(ws.rglob(".drivetrain"))


def test_a_project_has_the_same_root_from_everywhere(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = project(ws / "shop", pyproject_toml="")
    root = holding(shop)
    (ws / "deep").mkdir()
    (ws / "link").symlink_to(shop)
    for folder, name in ((ws, "shop"), (shop, "."), (ws / "deep", "../shop"), (Path("/"), str(shop)), (ws, "link")):
        monkeypatch.chdir(folder)
        assert find_root(Path(name)).root == root
    monkeypatch.chdir(ws / "link")
    assert find_root().root == root
    (shop / "data" / "raw").mkdir(parents=True)
    monkeypatch.chdir(shop / "data" / "raw")
    assert find_root().root == root


def test_the_projects_own_history_goes_before_that_of_the_working_directory(
    ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, old = project(ws / "shop", pyproject_toml=""), holding(ws / "work")
    monkeypatch.chdir(ws / "work")
    assert find_root(shop).root == old  # where it began before roots were searched for
    root = holding(shop)
    located = find_root(shop)
    assert (located.root, located.others) == (root, (old,))
    assert find_root().root == old
    (ws / "work" / "pyproject.toml").write_text('[tool.drivetrain]\nroot = "runs"\n')
    assert find_root(shop).root == root
    shutil.rmtree(root)
    assert find_root(shop).root == ws / "work" / "runs"


def test_of_nested_projects_the_nearest_root_counts_and_the_others_are_named(ws: Path) -> None:
    outer, middle, inner = (ws / name for name in ("outer", "outer/middle", "outer/middle/inner"))
    project(inner)
    far = holding(outer)
    assert find_root(inner).root == far
    near = holding(middle)
    located = find_root(inner)
    assert (located.root, located.others) == (near, (far,))
    (inner / "pyproject.toml").touch()  # a project of its own
    assert find_root(inner).root == inner / ".drivetrain"


def test_a_folder_without_a_store_is_passed_by(ws: Path) -> None:
    shop = project(ws / "shop" / "deep")
    root = holding(ws / "shop")
    for name in ("", "work", "logs"):
        (shop / ".drivetrain" / name).mkdir(parents=True, exist_ok=True)
        assert find_root(shop).root == root
    # One whose store was lost is told when it is opened, and not replaced in silence.
    (shop / ".drivetrain" / "artifacts" / "A" / "b" / "c").mkdir(parents=True)
    (shop / ".drivetrain" / "artifacts" / "A" / "b" / "c" / "manifest.json").touch()
    assert find_root(shop).root == shop / ".drivetrain"
    with pytest.raises(InputError, match="it was lost"):
        Home(shop / ".drivetrain", readonly=True)


def test_looking_creates_nothing(ws: Path) -> None:
    (ws / ".drivetrain").mkdir()
    with pytest.raises(InputError, match=f"there are no runs in {ws}/.drivetrain"):
        Home(find_root().root, readonly=True)
    assert not list((ws / ".drivetrain").iterdir())


def test_the_only_project_of_a_folder_is_named(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = holding(ws / "first")
    monkeypatch.chdir(ws)
    with pytest.raises(InputError) as caught:
        Home(find_root().root, readonly=True)
    assert caught.value.fix == f"name {root}, which holds runs: --root, in Python root="
    holding(ws / "second")
    with pytest.raises(InputError) as caught:
        Home(find_root().root, readonly=True)
    assert (caught.value.fix or "").startswith("go to the project's folder")


def test_the_search_ends_at_git_a_pyproject_home_and_a_mount(
    ws: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = holding(ws)
    shop = project(ws / "end" / "shop")
    monkeypatch.chdir(shop)
    assert find_root(shop).root == far
    for end in (".git", "pyproject.toml"):
        (ws / "end" / end).touch()
        assert find_root(shop).root == ws / "end" / ".drivetrain"
        (ws / "end" / end).unlink()
    with monkeypatch.context() as patch:
        patch.setenv("HOME", str(ws / "end"))
        assert find_root(shop).root == shop / ".drivetrain"
        near = holding(ws / "end")  # the end itself is still looked at
        assert find_root(shop).root == near
        shutil.rmtree(near)
    ismount = os.path.ismount
    with monkeypatch.context() as patch:
        patch.setattr("os.path.ismount", lambda path: Path(path) == ws / "end" or ismount(path))
        assert find_root(shop).root == shop / ".drivetrain"
    with monkeypatch.context() as patch:  # a container's user may have no home
        patch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
        assert find_root(shop).root == far


def test_what_another_user_owns_is_passed_by_and_never_taken_over(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, owner = project(ws / "shop"), os.geteuid()
    theirs = holding(ws)
    assert find_root(shop).root == theirs
    monkeypatch.setattr("os.geteuid", lambda: owner + 4242)
    assert find_root(shop).root == shop / ".drivetrain"
    (ws / ".git").mkdir()  # a new root would be that of the other user
    with pytest.raises(InputError, match="belongs to ") as error:
        find_root(shop)
    assert f"--root {theirs}" in str(error.value)
    assert find_root(shop, root=theirs).root == theirs


def test_a_link_that_another_user_made_is_passed_by(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, elsewhere = project(ws / "shop"), holding(ws / "elsewhere")
    (shop / ".drivetrain").symlink_to(elsewhere)
    assert find_root(shop).root == shop / ".drivetrain"
    assert Home(find_root(shop).root).base == shop  # what is pushed lies beside the link
    linked, status = (shop / ".drivetrain").lstat(), os.stat

    def stat(path: Path, **options: bool) -> object:
        facts = status(path, **options)
        if (facts.st_dev, facts.st_ino) != (linked.st_dev, linked.st_ino):
            return facts
        return os.stat_result((*facts[:4], facts.st_uid + 4242, *facts[5:10]))

    monkeypatch.setattr("os.stat", stat)
    with pytest.raises(InputError, match="belongs to user "):
        find_root(shop)


def test_the_store_and_the_artifacts_of_a_pyproject_go_with_its_root(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = project(ws / "shop")
    table = (
        '[tool.drivetrain]\nroot = "runs"\nstore = "{}"\nartifacts = "{}"\n[tool.drivetrain.package]\ninclude = []\n'
    )
    for store, expected in (
        ("postgresql://db/runs", "postgresql://db/runs"),
        ("meta.db", str(shop / "meta.db")),
        ("sqlite:///meta.db", f"sqlite:///{shop}/meta.db"),
        ("sqlite:////srv/meta.db", "sqlite:////srv/meta.db"),
    ):
        (shop / "pyproject.toml").write_text(table.format(store, "s3://bucket/shop"))
        located = find_root(shop)
        assert (located.root, located.store, located.artifacts) == (shop / "runs", expected, "s3://bucket/shop")
    (shop / "pyproject.toml").write_text(table.format("meta.db", "objects"))
    assert find_root(shop).artifacts == f"file://{shop}/objects"
    assert find_root(shop, store="other.db").store == "other.db"
    named = find_root(shop, root="scratch")  # another root is another history
    assert (named.root, named.store, named.artifacts) == (ws / "scratch", None, None)
    monkeypatch.setenv("DRIVETRAIN_STORE", "variable.db")
    assert find_root(shop).store == "variable.db"
    monkeypatch.delenv("DRIVETRAIN_STORE")
    (shop / "pyproject.toml").write_text('[tool.drivetrain]\nstore = "meta.db"\n')
    assert find_root(shop).root == shop / ".drivetrain"
    home = Home(find_root(shop).root, store=find_root(shop).store)
    home.store.context("run", "a")
    home.close()
    assert (shop / "meta.db").is_file()
    assert not (shop / ".drivetrain" / "metadata.db").exists()


@pytest.mark.parametrize(
    ("text", "said", "fix"),
    [
        ("[tool.drivetrain\nroot = 1", "pyproject.toml cannot be read: Expected ']'", "--root"),
        ("[tool.drivetrain]\nroot = 1\n", "has root = 1", "give text"),
        ('[tool.drivetrain]\nroot = ""\n', "has root = ''", "give text"),
        ('[tool.drivetrain]\nrooot = "x"\n', "has no setting 'rooot'", "did you mean 'root'?"),
        ("[tool]\ndrivetrain = 3\n", "tool.drivetrain is not a table", "root"),
        ('[tool.drivetrain]\nroot = "s3://bucket/runs"\n', "is not a folder of this machine", "--artifacts s3://"),
    ],
)
def test_a_pyproject_that_is_wrong_is_one_clear_error(ws: Path, text: str, said: str, fix: str) -> None:
    shop = project(ws / "shop", pyproject_toml=text)
    with pytest.raises(InputError) as error:
        find_root(shop)
    assert f"{shop}/pyproject.toml" in error.value.message
    assert said in error.value.message
    assert fix in (error.value.fix or "")
    assert find_root(shop, root="x").root == ws / "x"


def test_a_working_directory_that_was_removed_is_named(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ws / "gone").mkdir()
    monkeypatch.chdir(ws / "gone")
    (ws / "gone").rmdir()
    with pytest.raises(InputError, match=r"the working directory does not exist any more\n.*go to a folder"):
        find_root()


def test_a_root_that_cannot_be_written_names_the_option(ws: Path) -> None:
    shop = project(ws / "shop")
    (shop / ".drivetrain").write_text("no folder")
    with pytest.raises(InputError, match=r"cannot be made: .*") as error:
        Home(find_root(shop).root)
    assert "--root" in (error.value.fix or "")
    (ws / "dangling").mkdir()
    (ws / "dangling" / ".drivetrain").symlink_to(ws / "gone" / "far")
    with pytest.raises(InputError, match="cannot be made") as error:
        Home(find_root(ws / "dangling").root)
    assert "--root" in (error.value.fix or "")
    with pytest.raises(InputError, match="cannot be made: File name too long") as error:
        Home(ws / ("x" * 300))
    assert "--root" in (error.value.fix or "")


OPEN = "import sys; from pathlib import Path; from drivetrain.pipelines import Home, find_root; \
Home(find_root(Path(sys.argv[1])).root)"


@pytest.mark.parametrize("name", ["old", "new"])
def test_a_read_only_disk_names_the_option(ws: Path, name: str) -> None:
    """A real one: with a root that exists, and without."""
    disk = ws / "disk"
    holding(disk / "old")
    (disk / "new").mkdir()
    mount = f"mount --bind {disk} {disk} && mount -o remount,bind,ro {disk} &&"
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    probe = subprocess.run([*apart, f"{mount} true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"this user may not mount: {probe.stderr}")
    command = [*apart, f'{mount} exec "$0" "$@"', sys.executable, "-c", OPEN, str(disk / name)]
    opened = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert opened.returncode
    *_, said, fix = opened.stderr.splitlines()
    assert "InputError" in said or "StoreUnavailable" in said
    assert str(disk / name / ".drivetrain") in said
    assert "--root" in fix
