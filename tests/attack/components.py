"""Components that mean harm: the run ends in a state, the store stays whole, and honest runs go on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

from drivetrain.tests.attack import shop
from drivetrain.tests.attack.attack import Attack, Case, Finding
from drivetrain.tests.attack.verbs import check_printed, verb

ACTS = {
    "write into the input": "(examples.content / 'rows').chmod(0o644); (examples.content / 'rows').write_text('99')",
    "add to the input": "examples.content.chmod(0o755); (examples.content / 'new').write_text('99')",
    "remove the input": "shutil.rmtree(examples.content)",
    "remove the staging": "shutil.rmtree(model.content.parent)",
    "remove all staging": "shutil.rmtree(model.content.parents[2])",
    "exit": "os._exit(3)",
    "system exit": "raise SystemExit(0)",
    "system exit with text": "raise SystemExit('\\x1b]0;owned\\x07')",
    "interrupt": "raise KeyboardInterrupt",
    "base exception": "raise Odd('odd')",
    "generator exit": "raise GeneratorExit",
    "error that cannot be shown": "raise Mute",
    "memory error": "raise MemoryError",
    "recursion": "f = lambda: f(); f()",
    "group": "raise BaseExceptionGroup('all', [ValueError('a'), Odd('b')])",
    "killed": "os.kill(os.getpid(), 9)",
    "crash": "os.kill(os.getpid(), 11)",
    "terminated": "os.kill(os.getpid(), 15)",
    "fork and go on": "os.fork()",
    "child that writes on": "late(model.content / 'total')",
    "thread that hangs": "threading.Thread(target=time.sleep, args=(5,), daemon=True).start()",
    "thread that crashes": "threading.Thread(target=lambda: 1 / 0).start()",
    "exit handler that crashes": "atexit.register(lambda: 1 / 0)",
    "return nothing": "return None",
    "return a number": "return 7",
    "return the input": "return examples",
    "return a class": "return Model",
    "return two": "return model, model",
    "return a list": "return [model]",
    "link in the output": "(model.content / 'link').symlink_to('/etc/passwd')",
    "output is a link": "shutil.rmtree(model.content); model.content.symlink_to('/etc')",
    "extra is a link": "(model.content.parent / 'extra').symlink_to('/etc')",
    "hard link in the output": "os.link(examples.content / 'rows', model.content / 'rows')",
    "pipe in the output": "os.mkfifo(model.content / 'pipe')",
    "socket in the output": "os.chdir(model.content); socket.socket(socket.AF_UNIX).bind('s')",
    "odd names": "[(model.content / name).write_text('x') for name in ('a\\nb', '\\x1b[2J', '-rf', 'manifest.json')]",
    "name that is not text": "open(bytes(model.content) + b'/\\xff', 'w').close()",
    "long name": "(model.content / ('x' * 255)).write_text('x')",
    "beside the output": "(model.content.parent / 'more').write_text('x')",
    "mode of the output": "(model.content / 'total').write_text('0'); (model.content / 'total').chmod(0)",
    "setuid": "(model.content / 'x').write_text('x'); (model.content / 'x').chmod(0o6777)",
    "deep folders": "deep(model.content)",
    "close stdout": "os.close(1)",
    "close everything": "os.closerange(3, 200)",
    "another folder": "os.chdir('/')",
    "folder that is gone": "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
    "umask": "os.umask(0o777)",
    "trace": "sys.settrace(lambda *_: None)",
    "clock": "time.time = lambda: -1.0",
    "recursion limit": "sys.setrecursionlimit(60)",
    "modules": "sys.modules.pop('json'); sys.modules['json'] = None",
    "standard output": "sys.stdout = None",
    "alarm": "signal.setitimer(signal.ITIMER_REAL, 0.05)",
    "odd output": "print('\\x1b]0;owned\\x07\\x9b2J\\u202e\\ud800' * 3)",
    "bytes on stdout": "os.write(1, b'\\xff\\xfe\\x00{\"run\": 1}\\n')",
    "much output": "print('x' * 5_000_000)",
    "odd note": "current().note('\\x1b]0;owned\\x07' + 'x' * 100_000)",
    "odd property": "model.blessed = object()",
    "nan property": "model.rows = float('nan')",
    "drop the table": "sqlite3.connect(current().base.parents[0] / 'x.db').execute('create table x (y)')",
    "environment": "os.environ.clear()",
    "soft limits": "resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))",
}
PIPELINE = '''
import atexit, os, resource, shutil, signal, socket, sqlite3, sys, threading, time
import drivetrain as dt
from drivetrain.metadata import Examples, Model
from drivetrain.pipelines import current


class Odd(BaseException):
    pass


class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")

    __repr__ = __str__


def late(path):
    if os.fork() == 0:
        for _ in range(20):
            time.sleep(0.1)
            try:
                os.chmod(path, 0o644)
                path.write_text("late")
            except OSError:
                pass
        os._exit(0)


def deep(path):
    for _ in range(60):
        path = path / ("d" * 50)
        path.mkdir()
    (path / "x").write_text("x")


@dt.component
def Make(rows: int) -> Examples:
    examples = Examples.new(rows={"train": rows})
    (examples.content / "rows").write_text(str(rows))
    return examples


@dt.component
def Harm(examples: Examples) -> Model:
    model = Model.new()
    (model.content / "total").write_text("1")
    ACTS
    return model


@dt.component
def After(model: Model) -> Model:
    after = Model.new()
    (after.content / "total").write_text((model.content / "total").read_text())
    return after


@dt.pipeline
def harm(rows: int = 3) -> None:
    """Harm."""
    After(Harm(Make(rows)))
'''
APART = {"modules"}
"""What takes inline from the shell itself: modules that it still needs."""
STATES = {"COMPLETE", "FAILED", "CANCELED", "STOPPED", "INTERRUPTED", "ABANDONED"}
LIMIT = 40.0  # seconds of a run


def _prepare(folder: Path) -> Path:
    shop.prepare(folder)
    (folder / "harm").mkdir()
    return folder


def _draw(dice: Random) -> Case:
    acts = [["act", dice.choice(list(ACTS))] for _ in range(dice.choice((1, 1, 1, 2)))]
    alone = any(name in APART for _, name in acts)
    return [["runner", "process" if alone else dice.choice(("inline", "inline", "process"))], *acts]


def _check(folder: Path, case: Case) -> None:
    root = shop.fresh(folder)
    acts = [ACTS[step[1]] for step in case if step[0] == "act"]
    runner = next((step[1] for step in case if step[0] == "runner"), "inline")
    (folder / "harm" / "pipeline.py").write_text(PIPELINE.replace("ACTS", "\n    ".join(acts) or "pass"))
    command = [sys.executable, "-m", "drivetrain", "run", "harm", "--root", str(root), "--runner", runner]
    environment = {**os.environ, "DRIVETRAIN_DEBUG": "1", "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as process:
        try:
            _, stderr = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Finding(f"a run hangs by {[step[1] for step in case]}") from None
    errors = stderr.decode(errors="replace")
    # What a component itself writes to the terminal's file descriptors goes there as it is, so SECURITY.md says.
    shown = verb("show", "--json", "--root", str(root))
    if shown.code == 0:
        body = json.loads(shown.stdout)
        if body["state"] not in STATES:
            raise Finding(f"a run is left {body['state']}\n{case}\n{errors[-2000:]}")
        if body["state"] == "COMPLETE" and process.returncode not in (0, 3):
            raise Finding(f"a run is COMPLETE and exits with {process.returncode}\n{errors[-2000:]}")
    for arguments in (("show",), ("runs",), ("fsck",), ("fsck", "--repair")):
        verb(*arguments, "--root", str(root))
    if verb("fsck", "--json", "--root", str(root)).code != 0 and not any("late" in act for act in acts):
        raise Finding(f"fsck finds something after its repair\n{verb('fsck', '--root', str(root)).stdout}")
    for factor in (4, 6):
        if shop.run(root, factor).code != 0:
            raise Finding(f"an honest run fails after {[step[1] for step in case]}")
    check_printed("", "" if acts else errors, ("run",))
    shutil.rmtree(folder / "harm" / "__pycache__", ignore_errors=True)


ATTACKS = {"hostile": Attack(_prepare, _draw, _check, slow=24, seconds=120, gibibytes=None)}
