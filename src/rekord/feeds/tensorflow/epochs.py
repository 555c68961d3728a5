"""Which epoch an iteration of a dataset reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Any, TypeAlias

from rekord.arguments import integer
from rekord.dataset.batches import BatchRequest, LoaderState
from rekord.errors import RekordError, error
from rekord.feeds.tensorflow.groups import Group

ReadGroups: TypeAlias = "Callable[[BatchRequest, int, int], Iterator[Group]]"
"""Reads an epoch from a position on."""


class EpochTracker:
    """The epoch of the next iteration: the one after the last epoch with more than its first batch delivered.

    So peeking at the first batch, as Keras does to build a model before it trains, does not use up an epoch.
    """

    def __init__(self, request: BatchRequest, state: Mapping[str, Any] | None, *, one_length: bool = False) -> None:
        epoch, consumed = request.epoch, 0
        if state is not None:
            loaded = LoaderState.from_dict(state)
            request, epoch, consumed = request.resume(loaded), loaded.epoch, loaded.consumed
        self.request = request
        self._one_length = one_length
        self._lock = Lock()
        # Keras rejects an epoch without batches: a state at the end of an epoch becomes the start of the next.
        ended = consumed > 0 and not len(request.steps(consumed))
        self.begin = (epoch + 1, 0) if ended else (epoch, consumed)  # the first epoch, and the position in it
        self._epoch, self._consumed = self.begin

    @property
    def resumed(self) -> bool:
        """Whether the first epoch is shorter than those that follow."""
        return self.begin[1] > 0

    @property
    def first_steps(self) -> int:
        """The number of batches in the first iteration."""
        return len(self.request.steps(self.begin[1]))

    def position(self) -> tuple[int, int]:
        """The epoch of an iteration that starts now, and the position in it."""
        with self._lock:
            epoch, consumed = self._epoch, self._consumed
        if self._one_length:
            self.check_epoch(epoch)
        return epoch, consumed

    def run(self, read: ReadGroups, epoch: int, consumed: int, *, delivered: int = 0) -> Iterator[tuple[Group, int]]:
        """An epoch from a position on: each group of batches, with the number of epochs begun if that changes.

        An epoch counts as begun with its second batch, or its only one; `delivered` batches precede the first.
        """
        # Not closed when this generator is dropped: that is a finalizer, which must not wait.
        groups = read(self.request, epoch, consumed)
        if delivered == 0:
            first = next(groups, None)
            if first is None:
                return
            failure = None
            try:
                coming = next(groups, None)
            except RekordError as raised:
                coming, failure = None, raised
            yield first, epoch + 1 if coming is None and failure is None else 0
            if failure is not None:
                raise failure
            if coming is None:
                return
            yield coming, epoch + 1
        for group in groups:
            yield group, epoch + 1 if delivered else 0

    def check_epoch(self, epoch: int) -> None:
        """Raise if this is an epoch after a first one that was only the rest of an epoch."""
        if not self.resumed or epoch == self.begin[0]:
            return
        raise error(
            "U609",
            f"resumed epoch {self.begin[0]} is over",
            expected="one iteration over a dataset that starts in the middle of an epoch",
            found="a second iteration",
            do=f"create another dataset for the following epochs: to_keras(…, epoch={epoch})",
        )

    def advance(self, begun: int) -> None:
        """Note that `begun` epochs have begun; concurrent loops may both report it."""
        with self._lock:
            if int(begun) > self._epoch:
                self._epoch, self._consumed = int(begun), 0

    def state_after(self, batches: int) -> dict[str, Any]:
        """The state after `batches` batches, counted from the dataset's first one, across epochs.

        Pass it as `state=`, or to `load_state_dict` of any other feed of the same split and order. Count the batches
        that you used: TensorFlow prefetches.
        """
        left = integer("batches", batches, least=0)
        epoch, consumed = self.begin
        steps = self.request.steps(consumed)
        while left >= len(steps) > 0:
            left -= len(steps)
            epoch, consumed = epoch + 1, 0
            steps = self.request.steps(0)
            if left >= len(steps) > 0:
                epoch, left = epoch + left // len(steps), left % len(steps)
        consumed = steps.consumed_after(left - 1) if left and len(steps) else consumed
        return self.request.state(epoch, consumed).to_dict()
