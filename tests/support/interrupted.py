"""What the tests of crashes share: a run that nothing interrupts, and the same one interrupted at every step."""

from __future__ import annotations

import errno
import os
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pytest
from faulty_storage import Crash, Fault, FaultyStorage
from sample_conversions import find_leftovers, read_tree

from rekord.errors import DatasetError

DEATHS: list[Fault] = ["crash", "short write then crash", "power loss"]
ERRORS: dict[Fault, int] = {"enospc": errno.ENOSPC, "eio": errno.EIO}


class Place(ABC):
    """The steps and the bytes of the whole run, and places for those that are interrupted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        storage = FaultyStorage()
        (folder / "whole").mkdir()
        self.run(folder / "whole" / "data", storage)
        self.steps = storage.operations
        self.bytes = read_tree(folder / "whole" / "data")
        self.count = 0

    @abstractmethod
    def run(self, out: Path, storage: FaultyStorage | None = None) -> Any:
        """Make the dataset."""

    def new(self) -> Path:
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        return folder / "data"

    def assert_absent_or_whole(self, out: Path) -> None:
        if out.exists():
            assert read_tree(out) == self.bytes

    def assert_next_run_ends_it(self, out: Path) -> None:
        self.run(out)
        assert read_tree(out) == self.bytes
        assert find_leftovers(out) == []
        shutil.rmtree(out.parent)

    def assert_deaths_are_made_good(self, fault: Fault) -> None:
        for step, operation in enumerate(self.steps, 1):
            if fault == "short write then crash" and operation.name != "write":
                continue  # there is no half of it: the same as a crash
            out = self.new()
            storage = FaultyStorage(fail_at=step, fault=fault)
            with pytest.raises(Crash):
                self.run(out, storage)
            assert len(storage.operations) == step, "a dead process does nothing more"
            self.assert_absent_or_whole(out)
            self.assert_next_run_ends_it(out)

    def assert_an_error_is_told_and_made_good(self, step: int, fault: Fault) -> None:
        out = self.new()
        with pytest.raises(DatasetError) as caught:
            self.run(out, FaultyStorage(fail_at=step, fault=fault))
        assert (caught.value.code, caught.value.found) == ("X504", os.strerror(ERRORS[fault]))
        assert str(caught.value.location.path).startswith(str(out.parent))
        self.assert_absent_or_whole(out)
        self.assert_next_run_ends_it(out)
