"""Without the instructions that only some CPUs have: the same bytes, the same values, the same errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Writes and reads a dataset, corrupts a file, and prints what came of it.
SCRIPT = """
import hashlib, json, sys
from pathlib import Path

import numpy as np

import rekord as rk
from rekord import _core

folder = Path(sys.argv[1])
rng = np.random.default_rng(7)
rows = [
    {
        "label": int(rng.integers(-2, 3)),
        "ids": (rng.integers(0, 2**62, 40) >> rng.integers(0, 62, 40)).tolist(),
        "vector": rng.random(3, np.float32),
        "blob": rng.bytes(int(rng.integers(0, 9000))),
    }
    for _ in range(200)
]
schema = rk.Schema(
    {"label": rk.Int64(), "ids": rk.Int64(shape=(None,)), "vector": rk.Float32(shape=(3,)), "blob": rk.Bytes()}
)
rk.write(rows, folder, schema=schema, progress=False, workers=1, shards=1)
(path,) = folder.glob("*.tfrecord")
whole, narrow = hashlib.sha256(), hashlib.sha256()
for batch in rk.open(folder).batches(64):
    for name in ("label", "vector"):
        whole.update(batch[name].tobytes())
    whole.update(batch["ids"].values.tobytes())
    whole.update(b"".join(batch["blob"].tolist()))
for batch in rk.open(folder).batches(64, columns=["label"]):
    narrow.update(batch["label"].tobytes())
data = path.read_bytes()
(folder / "bad.tfrecord").write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
try:
    list(rk.records(folder / "bad.tfrecord"))
    failure = None
except rk.FrameError as met:
    failure = [met.code, met.location.record]
file = hashlib.sha256(data).hexdigest()
print(json.dumps([_core.implementations(), [file, whole.hexdigest(), narrow.hexdigest(), failure]]))
"""


@pytest.mark.slow
def test_portable_code_writes_reads_and_verifies_the_same(tmp_path: Path) -> None:
    def run(name: str, **environment: str) -> Any:
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / name)]
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    _, usual = run("usual")
    used, portable = run("portable", REKORD_PORTABLE="1")
    assert used == ["portable", "portable"]
    assert portable == usual
    assert portable[-1] == ["F102", 199]
