"""TensorFlow, the judge: imported once, when a test asks for it."""

from __future__ import annotations

import os
import warnings
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def tf() -> ModuleType:
    """The real TensorFlow, without its own messages and warnings."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow

    return tensorflow


@pytest.fixture(scope="session")
def pb(tf: ModuleType) -> ModuleType:
    """TensorFlow's own protobuf classes."""
    from tensorflow.core.example import example_pb2

    return example_pb2
