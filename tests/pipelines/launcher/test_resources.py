"""What attempts are said to have used, held against clocks and counters that this project did not write."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import ExecutionRecord
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, run_pipeline
from drivetrain.pipelines.launcher import resources
from drivetrain.pipelines.launcher.resources import ProcessMeter

TOLERANCE = 0.05
"""Seconds of CPU: what the launcher itself does for a node while it is at work, on a busy machine."""


def burn(seconds: float) -> None:
    """Use so many seconds of this thread's CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def executions(home: Home, state: str = "COMPLETE") -> dict[str, ExecutionRecord]:
    return {str(each.properties["node"]): each for each in home.store.executions() if each.state == state}


def used(home: Home, node: str, state: str = "COMPLETE") -> dict[str, Any]:
    recorded: dict[str, Any] = executions(home, state)[node].properties["resources"]
    return recorded


@pytest.mark.parametrize("runner", ["inline", "process"])
def test_cpu_seconds_are_those_of_the_components_own_clock(
    home: Home, pipe: Callable[..., PipelineFunction[..., object]], runner: str
) -> None:
    code = (
        "begin = time.process_time()\n"
        "while time.process_time() < begin + 0.3: pass\n"
        "current().metric('own', time.process_time() - begin)"
    )
    burning = f"Misbehave.options(id='Burn')(numbers, code={code!r})"
    pipeline = pipe(f"numbers = Make()\n{burning}\nMisbehave(numbers, code='time.sleep(0.3)')")
    result = run_pipeline(home, pipeline, options=RunOptions(runner=runner, parallel=1))
    assert result.state == "COMPLETE"
    clock = executions(home)["Burn"].metrics["own"]
    assert clock is not None
    assert used(home, "Burn")["cpu_seconds"] == pytest.approx(clock, abs=TOLERANCE)
    assert used(home, "Misbehave")["cpu_seconds"] < TOLERANCE
    assert used(home, "Burn")["energy"] == "estimate"
    assert used(home, "Burn")["joules"] == pytest.approx(4.0 * used(home, "Burn")["cpu_seconds"], rel=0.01)


def test_children_that_were_waited_for_and_bytes_count_too(
    home: Home, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    code = (
        "import subprocess\n"
        "child = '''import time, pathlib\nwhile time.process_time() < 0.3: pass\n"
        "data = b'x' * (64 << 20)\npathlib.Path('big').write_bytes(data[:9 << 20])\nprint(time.process_time())'''\n"
        "ended = subprocess.run([sys.executable, '-c', child], check=True, cwd=current().work_dir, stdout=-1)\n"
        "current().metric('clock', float(ended.stdout))\n"
        "Path(current().work_dir, 'big').read_bytes()\n"
        "Path(current().work_dir, 'big').unlink()"
    )
    result = run_pipeline(home, pipe(f"Misbehave(Make(), code={code!r})"))
    assert result.state == "COMPLETE"
    recorded = used(home, "Misbehave")
    clock = executions(home)["Misbehave"].metrics["clock"]
    assert clock is not None
    assert clock <= recorded["cpu_seconds"] < clock + 2 * TOLERANCE  # it also has to start and to end
    assert recorded["peak_memory"] > 64 << 20
    if sys.platform == "linux":
        assert 9 << 20 <= recorded["bytes_written"] < 10 << 20
        assert recorded["bytes_read"] >= 9 << 20
        assert used(home, "Make")["bytes_written"] < 1 << 20


def test_two_at_once_have_each_its_own_and_together_all() -> None:
    meter = ProcessMeter()
    recorded: dict[float, dict[str, Any]] = {}
    both = threading.Barrier(2)

    def attempt(seconds: float) -> None:
        use = meter.begin()
        both.wait()
        burn(seconds)
        both.wait()
        recorded[seconds] = meter.recorded(use)
        both.wait()
        meter.end(use)

    before = resources.process_seconds()
    threads = [threading.Thread(target=attempt, args=(seconds,)) for seconds in (0.1, 0.4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = resources.process_seconds() - before
    assert recorded[0.1]["cpu_seconds"] == pytest.approx(0.1, abs=TOLERANCE)
    assert recorded[0.4]["cpu_seconds"] == pytest.approx(0.4, abs=TOLERANCE)
    assert sum(each["cpu_seconds"] for each in recorded.values()) == pytest.approx(whole, abs=TOLERANCE)


def test_branches_in_one_process_have_each_its_own(
    home: Home, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    code = "end = time.thread_time() + {}\nwhile time.thread_time() < end: pass"
    branches = [
        f"Misbehave.options(id='{name}')(numbers, code={code.format(seconds)!r})"
        for name, seconds in (("Short", 0.1), ("Long", 0.4))
    ]
    before = resources.process_seconds()
    run_pipeline(home, pipe("\n".join(["numbers = Make()", *branches])))
    whole = resources.process_seconds() - before
    assert used(home, "Short")["cpu_seconds"] == pytest.approx(0.1, abs=TOLERANCE)
    assert used(home, "Long")["cpu_seconds"] == pytest.approx(0.4, abs=TOLERANCE)
    assert sum(used(home, name)["cpu_seconds"] for name in ("Make", "Short", "Long")) <= whole


def test_what_no_attempts_thread_used_is_shared_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "pthread_getcpuclockid", raising=False)  # as on macOS
    meter = ProcessMeter()
    first = meter.begin()
    before = resources.process_seconds()
    burn(0.1)
    second = meter.begin()
    burn(0.2)
    meter.end(second)
    meter.end(second)
    burn(0.1)
    meter.end(first)
    whole = resources.process_seconds() - before
    burn(0.1)  # while none is at work
    assert meter.begin().cpu_seconds == 0.0
    assert first.cpu_seconds == pytest.approx(0.3, abs=TOLERANCE)
    assert second.cpu_seconds == pytest.approx(0.1, abs=TOLERANCE)
    assert first.cpu_seconds + second.cpu_seconds == pytest.approx(whole, abs=0.005)


@pytest.mark.parametrize(
    ("code", "state"), [("raise ValueError('no')", "FAILED"), ("raise KeyboardInterrupt", "CANCELED")]
)
def test_what_fails_or_is_stopped_has_used_something_too(
    home: Home, pipe: Callable[..., PipelineFunction[..., object]], code: str, state: str
) -> None:
    busy = f"begin = time.process_time()\nwhile time.process_time() < begin + 0.2: pass\n{code}"
    run_pipeline(home, pipe(f"Misbehave(Make(), code={busy!r})"))
    assert 0.2 <= used(home, "Misbehave", state)["cpu_seconds"] < 0.2 + TOLERANCE
    assert resources.METER._at_work == []


def test_a_cached_execution_has_used_nothing(home: Home, pipe: Callable[..., PipelineFunction[..., object]]) -> None:
    for _ in range(2):
        run_pipeline(home, pipe("Make()"))
    cached = next(each for each in home.store.executions() if each.state == "CACHED")
    assert "resources" not in cached.properties
    assert cached.cached_from == executions(home)["Make"].id


class Rapl:
    """A folder as Linux shows energy counters: two processors, memory, and what counts these again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        zones = ("0", "package-0"), ("0:0", "core"), ("0:1", "dram"), ("1", "package-1"), ("2", "psys")
        for zone, name in zones:
            path = folder / f"intel-rapl:{zone}"
            path.mkdir(parents=True)
            (path / "name").write_text(f"{name}\n")
            (path / "max_energy_range_uj").write_text("10000000\n")
            self.set(zone, 9_000_000)

    def set(self, zone: str, microjoules: int) -> None:
        (self.folder / f"intel-rapl:{zone}" / "energy_uj").write_text(f"{microjoules}\n")


@pytest.fixture
def rapl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rapl:
    monkeypatch.setattr(resources, "POWERCAP", tmp_path / "powercap")
    return Rapl(tmp_path / "powercap")


@pytest.mark.parametrize(("busy", "share"), [(8.0, 0.25), (2.0, 1.0), (0.0, 1.0)])
def test_the_processors_energy_is_shared_by_cpu_time(
    rapl: Rapl, monkeypatch: pytest.MonkeyPatch, busy: float, share: float
) -> None:
    clocks = {"process": 10.0, "machine": 100.0}
    monkeypatch.setattr(resources, "process_seconds", lambda: clocks["process"])
    monkeypatch.setattr(resources, "_busy_seconds", lambda: clocks["machine"])
    meter = ProcessMeter()
    use = meter.begin()
    clocks |= {"process": 12.0, "machine": 100.0 + busy}
    rapl.set("0", 500_000)  # 1.5 J, past its range
    rapl.set("0:0", 9_900_000)
    rapl.set("0:1", 9_250_000)  # 0.25 J
    rapl.set("1", 9_750_000)  # 0.75 J
    rapl.set("2", 9_999_999)
    recorded = meter.recorded(use)
    assert recorded["energy"] == "measured"
    assert recorded["joules"] == pytest.approx(2.5 * share, abs=0.01)
    rapl.set("0", 9_500_000)  # a beat between two ends sees each of two rounds
    meter.read()
    rapl.set("0", 500_000)
    clocks["process"] += 1.0
    assert meter.recorded(use)["joules"] > recorded["joules"]


def test_counters_that_only_root_reads_are_estimated(rapl: Rapl) -> None:
    for file in rapl.folder.glob("*/energy_uj"):
        file.unlink()
        file.mkdir()  # root reads any file; nobody reads a folder
    meter = ProcessMeter()
    assert meter.recorded(meter.begin())["energy"] == "estimate"


class NvmlError(Exception):
    """What NVIDIA's library raises."""


class FakeNvml(ModuleType):
    """NVIDIA's library, with cards by UUID."""

    NVMLError = NvmlError

    def __init__(self, cards: dict[str, int | None]) -> None:
        super().__init__("pynvml")
        self.cards = cards

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByUUID(self, name: str) -> str:
        if name not in self.cards:
            raise NvmlError("not found")
        return name

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return list(self.cards)[index]

    def nvmlDeviceGetName(self, handle: str) -> bytes:
        return b"NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        if (millijoules := self.cards[handle]) is None:
            raise NvmlError("not supported")
        return millijoules


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    library = FakeNvml({"GPU-a": 5000, "GPU-b": 70000, "GPU-c": None})
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


@pytest.mark.parametrize("visible", ["GPU-a,GPU-b", "0,1"])
def test_accelerators_have_their_own_counters(
    rapl: Rapl, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    meter = ProcessMeter()
    use = meter.begin(2)
    nvml.cards |= {"GPU-a": 105_000, "GPU-b": 120_000}
    use.began -= 30
    recorded = meter.recorded(use)
    assert recorded["gpu_seconds"] == pytest.approx(60, abs=1)
    assert recorded["accelerator"] == "NVIDIA H100 80GB HBM3"
    assert recorded["energy"] == "measured"
    assert recorded["joules"] == pytest.approx(150, abs=1)


@pytest.mark.parametrize(("visible", "model"), [("GPU-c", "NVIDIA H100 80GB HBM3"), ("GPU-x", ""), ("GPU-a,GPU-b", "")])
def test_an_accelerator_without_a_counter_is_estimated(
    rapl: Rapl, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, visible: str, model: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setenv(resources.WATTS_PER_ACCELERATOR, "700")
    meter = ProcessMeter()
    use = meter.begin(1)
    use.began -= 10
    recorded = meter.recorded(use)
    assert (recorded["energy"], recorded.get("accelerator", "")) == ("estimate", model)
    assert recorded["joules"] == pytest.approx(7000, rel=0.05)


@pytest.mark.parametrize("text", ["much", "-1", "nan", "inf"])
def test_watts_that_are_none_are_the_users_mistake(
    home: Home, pipe: Callable[..., PipelineFunction[..., object]], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(resources.WATTS_PER_CORE, text)
    with pytest.raises(InputError, match="DRIVETRAIN_WATTS_PER_CORE is"):
        ProcessMeter().begin()
    result = run_pipeline(home, pipe("Make()"))
    assert result.nodes["Make"].user_error
    monkeypatch.delenv(resources.WATTS_PER_CORE)
    assert run_pipeline(home, pipe("Make()")).state == "COMPLETE"


def test_a_process_that_is_out_of_files_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = ProcessMeter()
    use = meter.begin()
    known = resources._bytes()
    monkeypatch.setattr(resources, "_bytes", lambda: None)
    meter.read()
    monkeypatch.undo()
    os.write(os.open(os.devnull, os.O_WRONLY), bytes(1000))
    if known is not None:
        assert meter.recorded(use)["bytes_written"] >= 1000
