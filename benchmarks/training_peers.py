"""Other libraries that train the benchmark's network on the same arrays, each in a process, as users would write it.

The network is that of the flights example, the optimizer Adam, the batches of equal size and shuffled for each epoch.
All columns are in memory. `seconds` gives what a steady epoch takes. Keras is one of the development tools; PyTorch is
installed into an environment of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_KERAS = """
import json, statistics, sys, time
import keras
import numpy as np

setup = json.loads(sys.argv[1])
keras.utils.set_random_seed(0)
columns = dict(np.load(setup["columns"]))
label = columns.pop(setup["label"])
inputs = {name: keras.Input((), name=name, dtype=str(column.dtype)) for name, column in columns.items()}
one_hot = [keras.ops.one_hot(inputs[name], size) for name, size in setup["sizes"].items()]
categories = keras.layers.Concatenate()(one_hot)
numbers = [keras.ops.expand_dims(inputs[name], -1) for name in setup["numbers"]]
deep = keras.layers.Concatenate()([*numbers, categories])
for width in (64, 32):
    deep = keras.layers.Dense(width, activation="relu")(deep)
logits = keras.layers.Dense(1)(categories) + keras.layers.Dense(1)(deep)
model = keras.Model(inputs, logits)
model.compile(
    optimizer=keras.optimizers.Adam(1e-3),
    loss=keras.losses.BinaryCrossentropy(from_logits=True),
    steps_per_execution=setup["steps_per_execution"],
)
ends = []
watch = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append(time.perf_counter()))
rows = len(label) // setup["batch_size"] * setup["batch_size"]
history = model.fit(
    {name: column[:rows] for name, column in columns.items()}, label[:rows, None], batch_size=setup["batch_size"],
    epochs=setup["epochs"], shuffle=True, verbose=0, callbacks=[watch],
)
print(json.dumps({"seconds": statistics.median(np.diff(ends).tolist()), "loss": history.history["loss"][-1]}))
"""

_TORCH = """
import json, statistics, sys, time
import numpy as np
import torch
from torch import nn

setup = json.loads(sys.argv[1])
columns = {name: torch.from_numpy(column) for name, column in np.load(setup["columns"]).items()}
sizes = setup["sizes"]


class WideAndDeep(nn.Module):
    def __init__(self):
        super().__init__()
        width = sum(sizes.values())
        self.wide = nn.Linear(width, 1)
        self.deep = nn.Sequential(
            nn.Linear(len(setup["numbers"]) + width, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def forward(self, features):
        one_hot = [nn.functional.one_hot(features[name].long(), size) for name, size in sizes.items()]
        categories = torch.cat(one_hot, -1).float()
        numbers = torch.stack([features[name] for name in setup["numbers"]], -1)
        return (self.wide(categories) + self.deep(torch.cat([numbers, categories], -1)))[:, 0]


torch.manual_seed(0)
model = WideAndDeep()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_of = nn.BCEWithLogitsLoss()
rows, size = len(columns[setup["label"]]), setup["batch_size"]
ends = []
for epoch in range(setup["epochs"]):
    order = torch.randperm(rows)
    losses = []
    for begin in range(0, rows - size + 1, size):
        chosen = order[begin : begin + size]
        batch = {name: column[chosen] for name, column in columns.items()}
        optimizer.zero_grad()
        loss = loss_of(model(batch), batch[setup["label"]])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    mean = float(torch.stack(losses).mean())
    ends.append(time.perf_counter())
print(json.dumps({"seconds": statistics.median(np.diff(ends).tolist()), "loss": mean}))
"""


@dataclass(frozen=True)
class TrainingPeer:
    """A library to compare with.

    Attributes:
        script: Trains, and prints the seconds of a steady epoch and the last loss as JSON.
        packages: What pip installs into an environment of its own; none: it runs in this one.
        settings: Further settings of the script.
    """

    script: str
    packages: tuple[str, ...] = ()
    settings: tuple[tuple[str, int], ...] = ()


PEERS: Mapping[str, TrainingPeer] = {
    "Keras fit": TrainingPeer(_KERAS, settings=(("steps_per_execution", 1),)),
    "Keras fit, 32 steps per execution": TrainingPeer(_KERAS, settings=(("steps_per_execution", 32),)),
    "PyTorch eager": TrainingPeer(_TORCH, ("torch", "numpy")),
}
_VARIABLES = {"KERAS_BACKEND": "jax", "TF_CPP_MIN_LOG_LEVEL": "2"}


def seconds(name: str, setup: Mapping[str, Any], environments: Path) -> tuple[float, float]:
    """Wall seconds of a steady epoch of a peer, and the mean loss of its last epoch.

    Args:
        name: One of `PEERS`.
        setup: `columns` (an .npz), `label`, `numbers` (columns), `sizes` (of categories), `batch_size`, `epochs`.
        environments: Where its environment goes, and is found again.

    Raises:
        RuntimeError: It failed, with the end of what it said.
    """
    peer = PEERS[name]
    python = sys.executable
    if peer.packages:
        environment = environments / peer.packages[0]
        python = str(environment / "bin" / "python")
        if not Path(python).exists():
            subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *peer.packages], check=True)
    command = [python, "-c", peer.script, json.dumps({**setup, **dict(peer.settings)})]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **_VARIABLES})
    if done.returncode:
        raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
    said = json.loads(done.stdout.splitlines()[-1])
    return said["seconds"], said["loss"]


def save(columns: Mapping[str, Any], path: Path) -> Path:
    """The columns as an .npz that any library reads."""
    np.savez(path, **columns)
    return path
