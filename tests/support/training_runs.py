"""Finished training runs, for the tests of the report."""

from __future__ import annotations

import dataclasses
from base64 import b64decode
from typing import Any

import numpy as np

from rekord.training.result import EpochResult, TrainingResult
from rekord.training.task import InputColumn, Task

HOSTILE = "\"><script>alert('x')</script><img src=https://evil.example/x onerror=alert(1)>\x00\u202e&amp;"
PIXEL = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
"""A PNG of one pixel."""

MATRIX = np.array([[8, 2, 0], [1, 9, 0], [0, 5, 15]])


def finished_run(**changes: Any) -> TrainingResult:
    """A run of three classes, with the changes that are given."""
    task = Task(
        "classification",
        (InputColumn("image", "image"),),
        "label",
        ("rose", "tulip", "daisy"),
        left_out={"filename": "identifies the source of the record"},
    )
    done = [
        EpochResult(n, 1.0 / n, 0.5 + n / 10, 1.2 / n, 0.4 + n / 10, 10, 320, 320, 2.0, 0.1 * n) for n in range(1, 4)
    ]
    run = TrainingResult(
        dataset="data/flowers",
        out="flowers-model",
        task=task,
        backend="tensorflow",
        parameters=61_892,
        batch_size=32,
        train_split="train",
        val_split="val",
        train_records=320,
        val_records=40,
        epochs=tuple(done),
        confusion=MATRIX,
        chance=0.5,
        compile_seconds=1.5,
        first_batch_seconds=0.25,
        advice=(),
    )
    return dataclasses.replace(run, **changes)


def hostile_run() -> TrainingResult:
    """A run whose names would all like to be markup."""
    task = Task(
        "segmentation",
        (InputColumn(HOSTILE, "image"),),
        f"{HOSTILE}2",
        (HOSTILE, "</style>", "<b>cat</b>"),
        ignore=255,
        left_out={f"{HOSTILE}3": HOSTILE},
    )
    return finished_run(
        task=task,
        dataset=f"data/{HOSTILE}",
        out=HOSTILE,
        val_split=HOSTILE,
        advice=(HOSTILE,),
        backend=HOSTILE,
    )
