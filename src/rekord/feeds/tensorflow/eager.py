"""A tf.data.Dataset whose eager iteration does not go through tf.data.

Every element of a tf.data pipeline costs an eager loop several microseconds per column in Python. Here a loop
receives tensors that were transferred for many batches at a time. All other uses of the dataset, such as `map`,
`fit` or iteration in a tf.function, run the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from threading import Lock
from typing import Any

from rekord.errors import RekordError
from rekord.feeds.tensorflow.epochs import EpochTracker, ReadGroups


class EagerEpoch:
    """The batches of one iteration, which takes its epoch at the first one; `pipeline` makes datasets of the rest.

    A batch is unpacked when it is delivered: the tensors of its columns then do not live long enough for the garbage
    collector to traverse them, or to traverse everything else because of them.
    """

    def __init__(
        self,
        tf: Any,
        epochs: EpochTracker,
        read: ReadGroups,
        unpack: Callable[[Any], dict[str, Any]],
        pipeline: Callable[..., Any],
    ) -> None:
        self._tf = tf
        self._epochs = epochs
        self._read = read
        self._unpack = unpack
        self._pipeline = pipeline
        self._position: tuple[int, int] | None = None
        self._delivered = 0
        self._batches: Iterator[Any] = iter(())

    def __next__(self) -> dict[str, Any]:
        try:
            if self._position is None:
                self._position = self._epochs.position()
                self._batches = _deliver(self._epochs, self._read, self._position)
            batch = self._unpack(next(self._batches))
        except RekordError as failure:
            raise self._tf.errors.InvalidArgumentError(None, None, failure.message) from failure
        self._delivered += 1
        return batch

    def rest(self) -> Any:
        """A dataset of the batches that were not delivered yet; None if it has not begun."""
        if self._position is None:
            return None
        if self._delivered == 0:
            return self._pipeline(self._position)
        epoch, consumed = self._position
        consumed = self._epochs.request.steps(consumed).consumed_after(self._delivered - 1)
        return self._pipeline((epoch, consumed), self._delivered)


def _deliver(epochs: EpochTracker, read: ReadGroups, position: tuple[int, int]) -> Iterator[Any]:
    for group, begun in epochs.run(read, *position):
        for batches in group.pieces:
            for batch in batches:
                if begun:
                    epochs.advance(begun)
                    begun = 0
                yield batch


@cache
def make_dataset_class(tf: Any) -> Any:
    """The class of datasets in native mode; TensorFlow is imported only when needed."""
    owned_iterator: Any = type(iter(tf.data.Dataset.range(0)))

    class NativeDataset(tf.data.Dataset):  # type: ignore[misc]
        """Batches of a split that rekord decodes."""

        def __init__(self, dataset: Any, state_after: Callable[[int], dict[str, Any]], eager: Any) -> None:
            self._dataset = dataset
            self._eager = eager  # starts an iteration without the pipeline; None if there is none
            self.state_after = state_after
            super().__init__(dataset._variant_tensor)

        def _inputs(self) -> list[Any]:
            return [self._dataset]

        @property
        def element_spec(self) -> Any:
            return self._dataset.element_spec

        def __iter__(self) -> Any:
            if self._eager is None or not tf.executing_eagerly():
                return super().__iter__()
            return EagerIterator(self, self._eager())

    class EagerIterator(owned_iterator):  # type: ignore[misc]
        """The iterator of a dataset; its TensorFlow resource is created when it is used other than by `next`.

        That is when it is passed to a tf.function, as Keras does.
        """

        def __init__(self, dataset: Any, batches: Any) -> None:
            self._dataset = dataset  # kept alive for the resource
            self._element_spec = dataset.element_spec
            self._get_next_call_count = 0
            self._batches = batches
            self._resource: Any = None
            self._lock = Lock()

        @property
        def _iterator_resource(self) -> Any:
            if self._resource is None:
                with tf.init_scope():
                    # Keras begins every epoch here: another pipeline takes longer to build than some batches to read.
                    rest = self._batches.rest()
                    self._create_iterator(self._dataset._dataset if rest is None else rest)
            return self._resource

        @_iterator_resource.setter
        def _iterator_resource(self, resource: Any) -> None:
            self._resource = resource

        def _next_internal(self) -> Any:
            if self._resource is not None or not tf.executing_eagerly():
                return super()._next_internal()
            with self._lock:  # as for other iterators of TensorFlow, several threads may share it
                batch = next(self._batches, None)
            if batch is None:
                raise tf.errors.OutOfRangeError(None, None, "End of sequence")
            return batch

    return NativeDataset
