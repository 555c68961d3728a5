"""`BackgroundIterator`: the same items in the same order, whatever becomes of maker and caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from lifetimes import ended

from rekord.health.scan import BackgroundIterator

pytestmark = pytest.mark.concurrency


def is_alive(items: BackgroundIterator[int]) -> bool:
    return any(one.is_alive() for one in items._work._threads)


@pytest.mark.parametrize("depth", [1, 2, 50])
def test_every_item_comes_in_order(depth: int) -> None:
    items = BackgroundIterator(iter(range(40)), depth)
    assert list(items) == list(range(40))
    assert not is_alive(items)


def test_a_failure_comes_after_what_was_made_before_it() -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("no more")

    items = BackgroundIterator(failing(), 8)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(KeyError, match="no more"):
        next(items)
    assert not is_alive(items)


def test_a_caller_that_stops_early_ends_the_thread() -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    maker = endless()
    items = BackgroundIterator(maker, 2)
    assert next(items) == 1
    items.close()
    assert not is_alive(items)
    maker.close()
    assert closed.is_set()


def test_no_more_than_depth_items_are_made_ahead() -> None:
    made = []

    def counted() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    items = BackgroundIterator(counted(), 3)
    for number in range(10):
        assert next(items) == number
        # One is in the maker's hands, three are in the queue, and this one is ours.
        assert len(made) <= number + 5
    items.close()


def test_items_left_behind_end_the_thread_without_waiting_for_it() -> None:
    may_end = threading.Event()

    def slow() -> Iterator[int]:
        yield 1
        may_end.wait()
        yield 2

    items = BackgroundIterator(slow(), 2)
    assert next(items) == 1
    threads = list(items._work._threads)
    del items
    assert threads[0].is_alive()
    may_end.set()
    assert ended(threads)
