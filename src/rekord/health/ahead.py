"""Work that goes on while its results are being used."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TypeVar

Item = TypeVar("Item")

_LOOK_SECONDS = 0.05
"""How soon a thread that waits for room notices that nobody wants any more."""

_LEAVE_SECONDS = 1.0
"""How long a thread is waited for that nobody wants any more: it may hang in a read that never comes back."""


def ahead(items: Iterator[Item], depth: int) -> Generator[Item, None, None]:
    """The same items in the same order, made by another thread, at most `depth` of them ahead of the caller.

    What the maker raises is raised here, after everything that it made before. When the caller stops early, or is
    interrupted, the thread ends with the item that it is at; where that takes long, it is left behind.
    """
    queue: Queue[tuple[str, Item | BaseException | None]] = Queue(depth)
    stopped = Event()

    def put(kind: str, item: Item | BaseException | None) -> bool:
        while not stopped.is_set():
            try:
                queue.put((kind, item), timeout=_LOOK_SECONDS)
                return True
            except Full:
                continue
        return False

    def make() -> None:
        try:
            for item in items:
                if not put("item", item):
                    return
                del item  # held by nobody but the queue: what it holds on to is free once it was used
            put("end", None)
        except BaseException as failure:
            put("failure", failure)

    thread = Thread(target=make, name="rekord-ahead", daemon=True)
    thread.start()
    try:
        while True:
            kind, item = queue.get()
            if kind == "end":
                return
            if kind == "failure":
                assert isinstance(item, BaseException)
                raise item
            yield item  # type: ignore[misc]
            del item
    finally:
        stopped.set()
        while True:
            try:
                queue.get_nowait()
            except Empty:
                break
        thread.join(_LEAVE_SECONDS)
