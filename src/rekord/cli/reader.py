"""`rekord reader`: reader code that matches a dataset."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from rekord.cli import console
from rekord.cli.options import argument, text_option


class Framework(StrEnum):
    """Whom the code is for."""

    TENSORFLOW = "tensorflow"
    TORCH = "torch"
    JAX = "jax"
    DALI = "dali"
    SPARK = "spark"


def reader(
    path: Annotated[str, argument("PATH", "A record file, a folder or a pattern.")],
    framework: Annotated[
        Framework, text_option("--for", "tensorflow|torch|jax|dali|spark", "What is to read the records.")
    ],
) -> int:
    """Print code that reads a dataset. It names files, keys, shapes, compression and classes."""
    from rekord.dataset.dataset import open as open_dataset
    from rekord.feeds.codegen import generate_reader_code

    for line in generate_reader_code(open_dataset(path), path, framework.value).splitlines():
        console.print_line(line)
    return 0
