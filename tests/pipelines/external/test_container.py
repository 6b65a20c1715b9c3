"""Containers as components: by a real docker or podman where one runs here, and what is said where none does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import drivetrain as dt
import pytest
from drivetrain.errors import BuildError, InputError
from drivetrain.pipelines import Home, load_pipeline, run_pipeline
from drivetrain.pipelines.external import container

IMAGE = "localhost/drivetrain-test:busybox"

# A machine whose first process reaps nothing keeps podman waiting for a zombie: whoever calls podman here reaps.
REAPER = """#!{python}
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
child = os.fork()
if not child:
    os.execv({podman!r}, [{podman!r}, *sys.argv[1:]])
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda given, frame: os.kill(child, given))
while True:
    done, status = os.wait()
    if done == child:
        os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)
"""


class Text(dt.Artifact):
    """Something with a file."""

    lines: int = 0


def put(text: str) -> Text:
    artifact = Text.new()
    (artifact.content / "a.txt").write_text(text)
    return artifact


@pytest.fixture(scope="session")
def busybox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image of busybox alone, made here: by docker if it answers, else by podman in a store of its own."""
    folder = tmp_path_factory.mktemp("containers")
    program = shutil.which("busybox")
    if program is None:
        pytest.skip("there is no busybox to make an image of")
    with tarfile.open(folder / "root.tar", "w") as tar:
        for name in ("bin", "tmp", "etc"):
            (folder / "root" / name).mkdir(parents=True)
            tar.add(folder / "root" / name, name)
        tar.add(Path(program).resolve(), "bin/busybox")
        for name in ("sh", "cat", "cp", "sleep", "id", "ls", "wc", "touch", "echo", "env", "sort", "tr"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        try:
            found = container.engine()
        except InputError as error:
            pytest.skip(error.message)
        if found.podman:
            # Where the path of its `run` is longer than 50 characters, podman waits 20 seconds at each container's end.
            short = stack.enter_context(tempfile.TemporaryDirectory(prefix="podman-"))
            _own_podman(folder, Path(short), patch)
            found = container.engine()
        made = subprocess.run(
            [found.path, "import", str(folder / "root.tar"), IMAGE], capture_output=True, text=True, check=False
        )
        tried = subprocess.run(
            [found.path, "run", "--rm", "--network", "none", IMAGE, "id"], capture_output=True, text=True, check=False
        )
        if made.returncode or tried.returncode:
            pytest.skip(f"{found.path} runs nothing here: {made.stderr}{tried.stderr}".strip())
        yield IMAGE
        subprocess.run([found.path, "rmi", "-f", IMAGE], capture_output=True, check=False)


def _own_podman(folder: Path, run: Path, patch: pytest.MonkeyPatch) -> None:
    """Podman without systemd, with images and containers in folders of the test's."""
    runtime = next((name for name in ("runc", "crun") if shutil.which(name)), "crun")
    (folder / "containers.conf").write_text(
        '[containers]\ndefault_ulimits=["nofile=1000:1000","nproc=1000:1000"]\n'
        f'[engine]\nruntime="{runtime}"\ncgroup_manager="cgroupfs"\nevents_logger="none"\n'
    )
    (folder / "storage.conf").write_text(f'[storage]\ndriver="vfs"\ngraphroot="{folder}/store"\nrunroot="{run}"\n')
    reaper = folder / "podman"
    reaper.write_text(REAPER.format(python=sys.executable, podman=shutil.which("podman")))
    reaper.chmod(0o755)
    patch.setenv("CONTAINERS_CONF", str(folder / "containers.conf"))
    patch.setenv("CONTAINERS_STORAGE_CONF", str(folder / "storage.conf"))
    patch.setenv(container.ENGINE, str(reaper))


def declare(*args: Any, **kwargs: Any) -> Any:
    """A component of an image without a digest, which is told."""
    with pytest.warns(UserWarning, match="has no digest"):
        return dt.container_component(*args, **kwargs)


pytestmark = pytest.mark.filterwarnings("ignore:.*has no digest:UserWarning")


@pytest.mark.containers
@pytest.mark.slow
def test_a_container_gets_inputs_and_gives_outputs(busybox: str) -> None:
    script = (
        'cat "$1"/a.txt | tr a-z A-Z > "$2/a.txt"; wc -l < "$2/a.txt" > "$3"; echo "{\\"lines\\": 2}" > "$4"; '
        'echo "$5 $MODE" > "$6"; id -u > "$7"'
    )
    upper = declare(
        "Upper",
        busybox,
        ["sh", "-c", script, "sh", dt.external.input_path("text"),
         dt.external.output_path("upper"), dt.external.output_path("lines"),
         dt.external.properties_path("upper"), dt.external.parameter("x"),
         dt.external.output_path("said"), dt.external.output_path("user")],
        inputs={"text": Text}, outputs={"upper": Text, "lines": int, "said": str, "user": int},
        parameters={"x": "a 'b' \"c\" $d"}, env={"MODE": "fast"},
    )  # fmt: skip
    made = upper(put("one\ntwo\n"))
    assert (made.upper.content / "a.txt").read_text() == "ONE\nTWO\n"
    assert (made.upper.lines, made.lines, made.said, made.user) == (2, 2, "a 'b' \"c\" $d fast", os.geteuid())
    assert (made.upper.content / "a.txt").stat().st_uid == os.geteuid()


@pytest.mark.containers
@pytest.mark.slow
def test_a_container_is_confined(busybox: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTSIDE", "seen")
    (tmp_path / "script.sh").write_text(
        'touch "$1/b.txt" && echo written; ls /sys/class/net; cat /proc/self/status; env; ls -a /drivetrain'
    )
    look = declare(
        "Look",
        busybox,
        ["sh", "-c", 'sh "$1" "$2" > "$3" 2>&1; true', "sh",
         dt.external.file_path("script"), dt.external.input_path("text"),
         dt.external.output_path("seen")],
        inputs={"text": Text}, outputs={"seen": str}, files={"script": str(tmp_path / "script.sh")},
    )  # fmt: skip
    text = put("one\n")
    seen = look(text).seen
    assert "Read-only file system" in seen
    assert "written" not in seen
    assert not (text.content / "b.txt").exists()
    assert [line for line in seen.splitlines() if line in ("lo", "eth0")] == ["lo"]
    assert "CapEff:\t0000000000000000" in seen
    assert "NoNewPrivs:\t1" in seen
    assert "OUTSIDE" not in seen


@pytest.mark.containers
@pytest.mark.slow
def test_a_container_that_fails_or_is_not_there(busybox: str) -> None:
    with pytest.raises(dt.DrivetrainError, match=r"(?s)X: `.*busybox sh -c .*` ended with exit code 5.*\| oh"):
        declare("X", busybox, ["sh", "-c", "echo oh; exit 5"])()
    with pytest.raises(dt.DrivetrainError, match=r"ended with exit code 12[57]"):
        declare("X", "localhost/drivetrain-test:none", ["sh"])()


@pytest.mark.containers
@pytest.mark.slow
def test_a_container_in_a_pipeline_is_cached_and_stopped(
    busybox: str, home: Home, project: Callable[..., Path]
) -> None:
    text = f"""
    import drivetrain as dt

    sort = dt.container_component(
        "Sort", {busybox!r}, args=["sort", "-r", dt.external.input_path("rows") + "/a",
        "-o", dt.external.output_path("sorted") + "/a"],
        inputs={{"rows": dt.Artifact}}, outputs={{"sorted": dt.Artifact}},
    )
    make = dt.shell_component(
        "Make", ["sh", "-c", 'seq 3 > "$0/a"', dt.external.output_path("rows")], outputs={{"rows": dt.Artifact}})

    @dt.pipeline
    def shop() -> None:
        sort(make().rows)
    """
    folder = project("shop", pipeline=text)
    first = run_pipeline(home, load_pipeline(folder)).nodes["Sort"]
    assert first.state == "COMPLETE", first.reason
    made = home.root / first.outputs["sorted"][0].uri / "content" / "a"
    assert made.read_text() == "3\n2\n1\n"
    assert run_pipeline(home, load_pipeline(folder)).nodes["Sort"].state == "CACHED"
    project("shop", pipeline=text.replace('"-r"', '"-n"'))
    assert run_pipeline(home, load_pipeline(folder)).nodes["Sort"].state == "COMPLETE"


@pytest.mark.containers
@pytest.mark.slow
def test_stopping_removes_the_container(busybox: str, tmp_path: Path, project: Callable[..., Path]) -> None:
    text = f"""
    import drivetrain as dt
    wait = dt.container_component("Wait", {busybox!r}, ["sh", "-c", "echo begun; sleep 300"])

    @dt.pipeline
    def shop() -> None:
        wait()
    """
    folder = project("shop", pipeline=text)
    code = f"from pathlib import Path; from drivetrain.pipelines import *; h = Home(Path({str(tmp_path / 'h')!r})); "
    code += f"run_pipeline(h, load_pipeline(Path({str(folder)!r})))"
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not any("begun" in log.read_text() for log in tmp_path.glob("h/logs/*/Wait.log")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    child.send_signal(2)
    child.wait(120)
    there = subprocess.run(
        [container.engine().path, "ps", "-a", "--format", "{{.Names}}"], capture_output=True, text=True, check=True
    ).stdout
    assert "drivetrain-" not in there


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with neither docker nor podman; gives the one folder of its PATH."""
    monkeypatch.delenv(container.ENGINE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def test_where_nothing_runs_containers(nothing: Path) -> None:
    with pytest.raises(InputError, match="docker is not installed; podman is not installed") as error:
        declare("X", "busybox", ["ls"])()
    assert container.ENGINE in str(error.value)


def test_where_the_daemon_is_down_the_next_one_is_taken(nothing: Path) -> None:
    (nothing / "docker").write_text("#!/bin/sh\necho Cannot connect to the Docker daemon >&2\nexit 1\n")
    (nothing / "docker").chmod(0o755)
    with pytest.raises(InputError, match="docker does not answer: Cannot connect to the Docker daemon; podman is not"):
        container.engine()
    (nothing / "podman").write_text("#!/bin/sh\necho Client: Podman Engine\n")
    (nothing / "podman").chmod(0o755)
    container._engine.cache_clear()
    assert container.engine() == container.Engine(str(nothing / "podman"), True)


def test_an_image_without_a_digest_is_told_where_the_code_has_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "user_line", lambda: "<unknown>")  # as of `python -c`
    assert declare("X", "busybox", ["ls"]).name == "X"


def test_a_digest_is_not_warned_of() -> None:
    pinned = f"busybox@sha256:{'0' * 64}"
    assert dt.container_component("X", pinned, ["ls"]).name == "X"
    with pytest.raises(BuildError, match="is not a valid image"):
        dt.container_component("X", "--privileged", ["ls"])
