"""`ahead`: the same items in the same order, whatever becomes of maker and caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from rekord.health.ahead import ahead


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "rekord-ahead"]


@pytest.mark.parametrize("depth", [1, 2, 50])
def test_every_item_comes_in_order(depth: int) -> None:
    assert list(ahead(iter(range(40)), depth)) == list(range(40))
    assert threads() == []


def test_a_failure_comes_after_what_was_made_before_it() -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("no more")

    items = ahead(failing(), 8)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(KeyError, match="no more"):
        next(items)
    assert threads() == []


def test_a_caller_that_stops_early_ends_the_thread() -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    maker = endless()
    items = ahead(maker, 2)
    assert next(items) == 1
    items.close()
    assert threads() == []
    maker.close()
    assert closed.is_set()


def test_no_more_than_depth_items_are_made_ahead() -> None:
    made = []

    def counted() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    items = ahead(counted(), 3)
    for number in range(10):
        assert next(items) == number
        # One is in the maker's hands, three are in the queue, and this one is ours.
        assert len(made) <= number + 5
    items.close()
