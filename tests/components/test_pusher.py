"""Pushing: whole versions or none, several pushers at once, killed pushers, and destinations that cannot be used."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from drivetrain import InputError
from drivetrain.components.pusher import Pusher, push, still_pushed
from drivetrain.console.cli import cli
from drivetrain.digest import digest_tree
from drivetrain.metadata import InfraValidation, Model
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, load_pipeline, run_pipeline
from drivetrain.pipelines.dsl.component import Withdrawn
from drivetrain.versions import versions_at

PUSH = """
import sys
from pathlib import Path
from typing import Any
from drivetrain.components.pusher import push
for _ in range(int(sys.argv[3])):
    print(*push(Path(sys.argv[1]), Path(sys.argv[2])))
"""


def bundle(folder: Path, text: str, size: int = 10) -> Path:
    (folder / "weights").mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"model": text}))
    (folder / "weights" / "w.bin").write_bytes(text.encode() * size)
    return folder


def names(folder: Path) -> list[str]:
    """What lies in a destination, without the records of versions that are there."""
    entries = (entry for entry in folder.iterdir() if entry.suffix != ".json" or not entry.with_suffix("").exists())
    return sorted(entry.name for entry in entries)


def test_versions_count_up_and_the_newest_is_adopted(tmp_path: Path) -> None:
    first, second = bundle(tmp_path / "a", "a"), bundle(tmp_path / "b", "b")
    serving = tmp_path / "serving" / "flights"
    assert push(first, serving) == (1, digest_tree(first).fingerprint)
    assert push(first, serving) == (1, digest_tree(first).fingerprint)
    assert push(second, serving)[0] == 2
    assert push(first, serving)[0] == 3  # version 2 is what is served, so this is a change
    assert names(serving) == ["1", "2", "3"]
    assert digest_tree(serving / "2") == digest_tree(second)


@pytest.mark.parametrize("at", ["serving", "memory"])
def test_a_number_that_was_pushed_once_names_no_other_bundle(tmp_path: Path, at: str) -> None:
    first, second, third = (bundle(tmp_path / name, name) for name in "abc")
    destination = tmp_path / "serving" if at == "serving" else f"memory://{tmp_path.name}/serving"
    used = [push(first, destination), push(second, destination)]
    versions_at(destination).store.remove("2")
    versions_at(destination).store.delete("2.json")
    assert push(third, destination, used=used)[0] == 3
    elsewhere = tmp_path / "elsewhere"
    assert push(second, elsewhere, used=used)[0] == 2  # it is what had that number
    assert push(first, elsewhere, used=used)[0] == 3


def test_versions_of_others_are_counted_and_left_alone(tmp_path: Path) -> None:
    serving = tmp_path / "serving"
    (serving / "7").mkdir(parents=True)
    (serving / "notes").write_text("mine")
    (serving / "08").mkdir()
    (serving / "9").symlink_to(tmp_path)
    assert push(bundle(tmp_path / "a", "a"), serving)[0] == 10
    assert names(serving) == ["08", "10", "7", "9", "notes"]


def test_keep_removes_the_oldest(tmp_path: Path) -> None:
    serving = tmp_path / "serving"
    for text in "abcd":
        push(bundle(tmp_path / text, text), serving, keep=2)
    assert names(serving) == ["3", "4"]
    assert push(tmp_path / "d", serving, keep=1)[0] == 4
    assert names(serving) == ["4"]


def test_a_changed_version_is_not_adopted(tmp_path: Path) -> None:
    serving, source = tmp_path / "serving", bundle(tmp_path / "a", "a")
    push(source, serving)
    (serving / "1" / "manifest.json").write_text("{}")
    assert push(source, serving)[0] == 2


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving, source = tmp_path / "serving", bundle(tmp_path / "a", "a")

    def full(*paths: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(InputError, match=r"cannot push to .*serving: No space left on device\n.*room"):
        push(source, serving)
    assert names(serving) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full and procfs")
@pytest.mark.parametrize("path", ["/proc/serving", "/dev/full/serving"])
def test_a_destination_that_cannot_be_written_is_one_error(tmp_path: Path, path: str) -> None:
    with pytest.raises(InputError, match=f"cannot push to {path}: "):
        push(bundle(tmp_path / "a", "a"), Path(path))


def test_a_file_in_the_destinations_place(tmp_path: Path) -> None:
    (tmp_path / "serving").write_text("occupied")
    source = bundle(tmp_path / "a", "a")
    for destination in (tmp_path / "serving", tmp_path / "serving" / "flights"):
        with pytest.raises(InputError, match="there is a file in its place"):
            push(source, destination)
    assert (tmp_path / "serving").read_text() == "occupied"


def test_an_empty_model_is_not_pushed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no bundle"):
        push(tmp_path, tmp_path.parent / f"{tmp_path.name}-serving")


def test_pushers_at_once_get_different_whole_versions(tmp_path: Path) -> None:
    serving = tmp_path / "serving"
    sources = [bundle(tmp_path / text, text, 50_000) for text in "abcd"]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PUSH, str(source), str(serving), "5"], stdout=subprocess.PIPE, text=True
        )
        for source in sources
    ]
    pushed = [line.split() for process in running for line in process.communicate()[0].splitlines()]
    assert [process.returncode for process in running] == [0] * 4
    assert len(pushed) == 20
    for version, digest in pushed:
        assert digest_tree(serving / version).fingerprint == digest
    versions = [int(name) for name in names(serving)]
    assert sorted(versions) == list(range(1, len(versions) + 1))
    assert {int(version) for version, _ in pushed} == set(versions)


def test_a_killed_pusher_leaves_no_version_and_the_next_one_sweeps(tmp_path: Path) -> None:
    serving, source = tmp_path / "serving", bundle(tmp_path / "a", "a", 20_000_000)
    code = "import drivetrain.versions as v\nv.sync_tree = lambda root: __import__('time').sleep(600)\n" + PUSH
    process = subprocess.Popen([sys.executable, "-c", code, str(source), str(serving), "1"])
    try:
        deadline = time.monotonic() + 60
        while not list(serving.glob(".incoming-*/weights/w.bin")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        left = next(serving.glob(".incoming-*"))
        other = bundle(tmp_path / "b", "b")
        assert push(other, serving)[0] == 1  # another pusher at work is neither waited for nor swept
        assert left.exists()
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert left.exists()
    assert push(other, serving)[0] == 1
    assert names(serving) == ["1"]


def model_of(text: str) -> Model:
    model = Model.new()
    bundle(model.content / "bundle", text)
    return model


def test_the_component_writes_a_receipt_without_times_or_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = []
    model = model_of("a")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        pushed = Pusher(model, destination="serving/flights")
        contents.append(digest_tree(pushed.content).fingerprint)
        assert digest_tree(tmp_path / name / "serving" / "flights" / "1") == digest_tree(model.content)
        receipt = json.loads((pushed.content / "receipt.json").read_text())
        assert receipt == {"destination": "serving/flights", "version": 1, "digest": pushed.digest}
        assert (pushed.destination, pushed.version) == ("serving/flights", 1)
    assert contents[0] == contents[1]


def test_a_warm_up_file_goes_beside_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    validation = InfraValidation.new(passed=True)
    assert Pusher(model_of("a"), validation, destination="serving").version == 1  # of a release that kept no requests
    assert not (tmp_path / "serving" / "1.warmup.jsonl").exists()
    (validation.content / "warmup.jsonl").write_text("{}\n")
    pushed = Pusher(model_of("a"), validation, destination="serving")
    assert (tmp_path / "serving" / "1.warmup.jsonl").read_text() == "{}\n"
    assert pushed.digest == Pusher(model_of("a"), destination="elsewhere").digest
    with pytest.raises(InputError, match="may not be pushed: it answers nothing"):
        Pusher(model_of("a"), InfraValidation.new(summary="it answers nothing"), destination="serving")


def test_a_push_is_believed_while_the_destination_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pushed = Pusher(model_of("a"), destination="serving")

    def verdict() -> str | Withdrawn | None:
        return still_pushed({"pushed": pushed}, {}, tmp_path)

    assert verdict() is None
    Pusher(model_of("b"), destination="serving")
    assert verdict() == "version 2 was pushed to serving since"  # a server serves that one
    assert Pusher(model_of("a"), destination="serving").version == 3
    assert verdict() is None  # the newest is the same bundle
    (tmp_path / "serving" / "1" / "bundle" / "manifest.json").write_text("{}")
    assert verdict() == "version 1 at serving is no longer what was pushed"
    (tmp_path / "serving" / "1").rename(tmp_path / "serving" / "old")
    assert verdict() == "version 1 is no longer at serving"
    shutil.rmtree(tmp_path / "serving")
    assert verdict() == "version 1 is no longer at serving"  # nothing is served: it is no rollback


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"destination": "https://host/model"}, "cannot push to https://host/model by HTTP"),
        ({"destination": "s3://me:hunter2@bucket/model"}, "holds a password, a token or a signature"),
        ({"destination": "nosuch://bucket/model"}, "there is no scheme nosuch://"),
        ({"destination": ""}, "not a destination"),
        ({"destination": "a\0b"}, "not a destination"),
        ({"destination": "serving", "keep": 0}, "keep must be at least 1, not 0"),
    ],
)
def test_parameters_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Pusher(model_of("a"), **options)


NUMBERED = """
    import drivetrain as dt
    from drivetrain.components import Pusher
    from drivetrain.metadata import Model

    @dt.component
    def Train(*, seed: int) -> Model:
        model = Model.new()
        (model.content / "manifest.json").write_text(f'{{"seed": {seed}}}')
        return model

    @dt.pipeline
    def shop(seed: int, destination: str = "served/m") -> None:
        Pusher(Train(seed=seed), destination=destination)
"""


def test_a_rollback_by_removing_a_folder_frees_no_number(tmp_path: Path, project: Callable[..., Path]) -> None:
    shop = load_pipeline(project("shop", pipeline=NUMBERED))
    with closing(Home(tmp_path / ".drivetrain")) as home:
        check_numbers(home, shop)


def test_a_cached_run_does_not_push_what_was_rolled_back(tmp_path: Path, project: Callable[..., Path]) -> None:
    """The node says so, and `rerun --from`, which it names, pushes it again."""
    folder, root = project("shop", pipeline=NUMBERED), ["--root", str(tmp_path / ".drivetrain")]

    def console(*arguments: str) -> str:
        result = CliRunner().invoke(cli, [*arguments, *root, "--json"], catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    for seed in (1, 2):
        console("run", str(folder), "-p", f"seed={seed}")
    served = tmp_path / "served" / "m"
    shutil.rmtree(served / "2")
    node = json.loads(console("run", str(folder), "-p", "seed=2"))["nodes"]["Pusher"]
    assert node["state"] == "CACHED"
    assert node["reason"].partition("; ")[2] == (
        "version 2 was removed from served/m, which goes back to version 1, and is not pushed again: to do it again, "
        "`drivetrain rerun --from Pusher`"
    )
    assert not (served / "2").exists()
    assert json.loads(console("show"))["nodes"]["Pusher"]["reason"] == node["reason"]
    shown = CliRunner().invoke(cli, ["show", *root]).output.splitlines()
    assert shown[shown.index("Pusher: model pushed: version 2 at served/m/2") + 1] == (
        f"  since then {node['reason'].partition('; ')[2]}"
    )
    console("rerun", "--from", "Pusher")
    assert (served / "2" / "manifest.json").read_text() == '{"seed": 2}'


def test_a_project_that_was_moved_knows_what_it_pushed(tmp_path: Path, project: Callable[..., Path]) -> None:
    """By what lies there: a number that was removed before or after the move names no other bundle."""
    shop = load_pipeline(project("shop", pipeline=NUMBERED))

    def pushed(home: Home, seed: int) -> int:
        result = run_pipeline(home, shop, {"seed": seed})
        return int(str(result.nodes["Pusher"].outputs["pushed_model"][0].properties["version"]))

    with closing(Home(tmp_path / "before" / ".drivetrain")) as home:
        assert [pushed(home, seed) for seed in (1, 2, 3)] == [1, 2, 3]
    shutil.rmtree(tmp_path / "before" / "served" / "m" / "3")
    (tmp_path / "before").rename(tmp_path / "after")
    served = tmp_path / "after" / "served" / "m"
    with closing(Home(tmp_path / "after" / ".drivetrain")) as home:
        assert pushed(home, 4) == 4
        shutil.rmtree(served / "4")
        assert pushed(home, 5) == 5
        (served / "1.json").write_text("{")  # a record that cannot be read is of no version
        assert pushed(home, 6) == 6
    with closing(Home(tmp_path / "elsewhere" / ".drivetrain")) as home:
        assert pushed(home, 9) == 1


def check_numbers(home: Home, shop: PipelineFunction[..., object]) -> None:
    def pushed(seed: int, destination: str = "served/m") -> int:
        result = run_pipeline(home, shop, {"seed": seed, "destination": destination})
        return int(str(result.nodes["Pusher"].outputs["pushed_model"][0].properties["version"]))

    served = home.base / "served" / "m"
    assert [pushed(seed) for seed in (1, 2)] == [1, 2]
    shutil.rmtree(served / "2")
    assert pushed(3) == 3
    assert pushed(3, "served/other") == 1
    shutil.rmtree(served / "3")
    assert pushed(3) == 3
    assert not (served / "3").exists()  # it was rolled back, and stays so until it is asked for
    asked = run_pipeline(home, shop, {"seed": 3, "destination": "served/m"}, RunOptions(cache=False))
    assert asked.nodes["Pusher"].outputs["pushed_model"][0].properties["version"] == 3
    assert (served / "3").exists()  # the same model under its number
    assert pushed(4) == 4
    receipt = next(each for each in home.store.artifacts(type="PushedModel") if each.properties["version"] == 4)
    home.store.update_artifact(receipt, state="MARKED_FOR_DELETION")
    shutil.rmtree(served)
    assert pushed(5) == 5
