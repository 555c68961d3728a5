"""`map=` on the datasets of frameworks: as many processes as workers, and the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from map_processes import assert_processes_take_part

COUNT = 12


def tf_data() -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices({"id": np.arange(COUNT), "vec": np.ones((COUNT, 3), np.float32)})


def torch_map_style() -> Any:
    import torch

    return torch.utils.data.TensorDataset(torch.arange(COUNT), torch.ones(COUNT, 3))


def torch_iterable() -> Any:
    import torch

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter([{"id": i, "vec": torch.ones(3) * i} for i in range(COUNT)])

    return Stream()


def hugging_face() -> Any:
    import datasets

    return datasets.Dataset.from_dict({"id": list(range(COUNT)), "text": [f"row {i}" for i in range(COUNT)]})


def hugging_face_stream() -> Any:
    return hugging_face().to_iterable_dataset()


SOURCES: list[Callable[[], Any]] = [tf_data, torch_map_style, torch_iterable, hugging_face, hugging_face_stream]


@pytest.mark.parametrize("make", SOURCES)
@pytest.mark.concurrency
def test_all_workers_call_the_function_and_bytes_do_not_depend_on_them(
    make: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_processes_take_part(make, tmp_path, monkeypatch)
