"""`rekord reader`: reader code that matches a dataset."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from rekord.cli import console
from rekord.cli.options import JsonOption, PathArgument, text_option


class Framework(StrEnum):
    """Frameworks to generate code for."""

    TENSORFLOW = "tensorflow"
    TORCH = "torch"
    JAX = "jax"
    DALI = "dali"
    SPARK = "spark"


def reader(
    path: PathArgument,
    framework: Annotated[
        Framework, text_option("--for", "tensorflow|torch|jax|dali|spark", "Framework to generate code for.")
    ],
    as_json: JsonOption = False,
) -> int:
    """Generate code that reads a dataset, with its files, keys, shapes, compression and classes."""
    from rekord.dataset.dataset import open as open_dataset
    from rekord.feeds.codegen import generate_reader_code

    code = generate_reader_code(open_dataset(path), path, framework.value)
    if as_json:
        console.print_json({"dataset": path, "for": framework.value, "code": code})
        return 0
    for line in code.splitlines():
        console.print_line(line)
    return 0
