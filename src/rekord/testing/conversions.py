"""Conversions for tests: prepared on any storage, of parts small enough that a few rows make many of them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any, Protocol

from rekord.engines import convert, cut, encoding, serial, spill
from rekord.engines.conversion import Conversion, Outcome
from rekord.storage.files import LOCAL, Storage
from rekord.verbs.prepare import prepare, run
from rekord.verbs.write import write


class _Patch(Protocol):
    def setattr(self, target: Any, name: str, value: object) -> None: ...


def cut_small(patch: _Patch, *, part_bytes: int = 250, run_bytes: int = 600, piece_bytes: int = 300) -> None:
    """Make parts, runs and pieces small in this process, so that few rows make several of each."""
    patch.setattr(convert, "PART_BYTES", part_bytes)
    patch.setattr(serial, "PART_BYTES", part_bytes)
    patch.setattr(spill, "RUN_BYTES", run_bytes)
    patch.setattr(cut, "RUN_BYTES", run_bytes)
    patch.setattr(encoding, "_PIECE_BYTES", piece_bytes)


def never_wait_for_disks(patch: _Patch) -> None:
    """Skip what makes a disk keep its bytes. `FaultyStorage` loses what was not synced without looking at disks."""
    patch.setattr(os, "fsync", lambda _descriptor: None)


def conversion(
    rows: Any, out: str | os.PathLike[str], options: Mapping[str, Any], storage: Storage = LOCAL
) -> Conversion:
    """What `rk.write(rows, out, **options)` would run, in this process alone unless options say otherwise."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(write).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name in inspect.signature(prepare).parameters
    }
    return prepare(rows, out, **{**defaults, "workers": 1, **options}, storage=storage)


def converted(
    rows: Any, out: str | os.PathLike[str], options: Mapping[str, Any], storage: Storage = LOCAL
) -> Outcome:
    """Run a conversion."""
    return run(conversion(rows, out, options, storage))


def strays(out: str | os.PathLike[str]) -> list[str]:
    """What lies beside a dataset and begins with its hidden name: stagings, locks, older datasets."""
    parent, name = os.path.split(os.path.abspath(out))
    return sorted(other for other in os.listdir(parent) if other.startswith(f".{name}."))
