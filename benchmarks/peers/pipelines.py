"""A tf.data pipeline over the rows of a workload, one element each, for those that write from one."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from workloads import Lists, Workload

from peers.rows import strings_of


def pipeline(workload: Workload, names: list[str]) -> Any:
    """Elements with these columns, from tensors in memory."""
    drawn = workload.whole()
    tensors = {}
    for column in workload.columns:
        if column.name in names:
            values = drawn[column.name]
            tensors[column.name] = tf.constant(strings_of(column, values) if isinstance(values, Lists) else values)
    return tf.data.Dataset.from_tensor_slices(tensors).prefetch(tf.data.AUTOTUNE)
