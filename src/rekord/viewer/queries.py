"""SQL on the records of a session: read-only, cancelled on request, limited in time, rows and memory."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from threading import BoundedSemaphore, Lock, Timer

import numpy as np

from rekord.dataset.samplers import Ids
from rekord.errors import RekordError, error
from rekord.viewer.query_process import (
    FAILURE,
    MAX_PROCESS_BYTES,
    RESULT,
    ConditionRequest,
    TableRequest,
    read_message,
    write_message,
)
from rekord.viewer.session import QueryTimeout, Session, Side, SplitRecords, TooManyQueries

MAX_SECONDS = 10.0
MAX_ROWS = 10_000
_START_SECONDS = 60.0
_MAX_WAITING = 2
_SMALL_PROCESS = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Libraries that reserve memory in advance, or for threads, would use up the limit of the process."""


class _Process:
    """A process that runs queries, one after the other. It starts at once and takes splits when it is first asked."""

    def __init__(self) -> None:
        self.has_splits = False
        self._spill = tempfile.mkdtemp(prefix="rekord-view-sql-")
        # Without -P, a module in the working directory would be imported instead of an installed one.
        command = [sys.executable, "-P", "-m", "rekord.viewer.query_process", self._spill]
        try:
            self._popen = subprocess.Popen(
                command,
                env={**os.environ, **_SMALL_PROCESS},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the server
            )
        except BaseException:
            shutil.rmtree(self._spill, ignore_errors=True)
            raise

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def send(self, message: bytes) -> None:
        assert self._popen.stdin is not None
        with suppress(OSError):  # it ended: there is no answer either
            write_message(self._popen.stdin, message)

    def receive(self) -> bytes | None:
        assert self._popen.stdout is not None
        return read_message(self._popen.stdout)

    def kill(self) -> None:
        """End it, whatever it does; the thread that waits for an answer gets None."""
        self._popen.kill()

    def end(self) -> None:
        """End it, and remove what it leaves behind."""
        self._popen.kill()
        self._popen.wait()
        for stream in (self._popen.stdin, self._popen.stdout):
            with suppress(OSError):  # what was not sent
                stream and stream.close()
        shutil.rmtree(self._spill, ignore_errors=True)


class _Run:
    """A query that waits or runs, and why it was stopped."""

    def __init__(self) -> None:
        self.stopped = ""


class _ProcessEnded(Exception):
    """The process ended without an answer."""


class QueryRunner:
    """Runs queries in a process of their own, one after the other.

    The process is ended with a query that is cancelled, too slow or too large; the next one is then started at once,
    since that takes longer than a filter may.
    """

    def __init__(self, session: Session, seconds: float = MAX_SECONDS) -> None:
        self.seconds = seconds
        self._session = session
        self._runs: dict[str, _Run] = {}
        self._process: _Process | None = None
        self._current: _Run | None = None  # what the process works on
        self._closed = False
        self._lock = Lock()  # for the fields above
        self._turn = Lock()
        self._places = BoundedSemaphore(_MAX_WAITING)

    def cancel(self, name: str) -> bool:
        """Stop a query; whether it was running."""
        with self._lock:
            run = self._runs.get(name)
        if run is None:
            return False
        self._stop(run, "cancelled")
        return True

    def close(self) -> None:
        """End the process, and the query that it runs."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
        with self._turn, self._lock:  # the thread that waited for an answer is done with the process
            if self._process is not None:
                self._process.end()
            self._process = None

    def run(self, side: Side, split: str | None, sql: str, *, limit: int, name: str = "") -> bytes:
        """The first rows of a query, as the page gets them: a JSON document."""
        splits = [side.get_split(split)] if split is not None else list(side.splits.values())
        names = [one.name for one in splits]
        return self._ask(splits, TableRequest(side.number, names, sql, max(1, min(limit, MAX_ROWS))), name)

    def find_records(self, side: Side, split: SplitRecords, condition: str) -> Ids:
        """The records of a split for which a condition is true, in order."""
        if not condition.strip():
            raise error("U605", "condition is empty", expected="an SQL condition over columns", found="nothing")
        count = len(split)
        bits = self._ask([split], ConditionRequest(side.number, split.name, condition, count), "")
        return np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), count=count)).astype(np.int64)

    def _ask(self, splits: list[SplitRecords], request: TableRequest | ConditionRequest, name: str) -> bytes:
        for split in splits:
            _check_readable(split)
        if not self._places.acquire(blocking=False):
            raise TooManyQueries
        run = _Run()
        with self._lock:
            self._runs[name] = run
        try:
            message = pickle.dumps(request)
            with self._turn:
                try:
                    return self._answer(run, message)
                except _ProcessEnded:  # perhaps before it got the query
                    return self._answer(run, message)
        except _ProcessEnded:
            raise _exhausted_error("the process that ran it ended") from None
        finally:
            with self._lock:
                if self._runs.get(name) is run:
                    del self._runs[name]
            self._places.release()

    def _answer(self, run: _Run, request: bytes) -> bytes:
        process = self._begin(run)
        answer = None
        try:
            if process.has_splits or self._prepare(process, run):
                answer = self._exchange(process, run, request, self.seconds)
        finally:
            kind = answer[:1] if answer else b""
            with self._lock:
                self._current = None
                if kind not in (RESULT, FAILURE) or run.stopped or self._closed:
                    process.end()
                    self._process = None
                    if not self._closed:
                        with suppress(OSError):  # the next query reports it
                            self._process = _Process()
        if run.stopped or self._closed:
            raise QueryTimeout(cancelled=run.stopped != "slow")
        if not answer:
            raise _ProcessEnded
        if kind not in (RESULT, FAILURE):
            raise _exhausted_error(answer[1:].decode())
        if kind == FAILURE:
            raise pickle.loads(answer[1:])
        return answer[1:]

    def _begin(self, run: _Run) -> _Process:
        with self._lock:
            if run.stopped or self._closed:  # while it waited
                raise QueryTimeout(cancelled=True)
            if self._process is not None and not self._process.is_alive:
                self._process.end()
                self._process = None
            if self._process is None:
                try:
                    self._process = _Process()
                except OSError as failure:
                    found = failure.strerror or str(failure)
                    raise error("U682", "no process can be started for queries", found=found, do=_DO) from None
            self._current = run
            return self._process

    def _prepare(self, process: _Process, run: _Run) -> bool:
        """Wait until a new process has loaded its libraries, which is not part of a query's time."""
        sides = [
            {name: one.split for name, one in side.splits.items() if one.split is not None}
            for side in self._session.sides
        ]
        process.has_splits = self._exchange(process, run, pickle.dumps(sides), _START_SECONDS) is not None
        return process.has_splits

    def _exchange(self, process: _Process, run: _Run, message: bytes, seconds: float) -> bytes | None:
        timer = Timer(seconds, self._stop, (run, "slow"))
        timer.daemon = True
        timer.start()
        try:
            process.send(message)
            return process.receive()
        finally:
            timer.cancel()

    def _stop(self, run: _Run, reason: str) -> None:
        with self._lock:
            run.stopped = run.stopped or reason
            if self._current is run and self._process is not None:
                self._process.kill()


_DO = "rekord query PATH SQL"


def _check_readable(split: SplitRecords) -> None:
    if split.split is None:
        raise error("U682", "files that are no dataset cannot be queried", do="rekord check PATH")
    if split.has_oversized:
        raise error("U682", "records of more than 64 MiB are not read for a query in the viewer", do=_DO)


def _exhausted_error(found: str) -> RekordError:
    return error(
        "U682",
        "query needs more memory than it has in the viewer",
        expected=f"a query that takes at most {MAX_PROCESS_BYTES >> 20} MiB",
        found=found,
        do=f"select less, such as left(text, 100); or, without this limit: {_DO}",
    )
