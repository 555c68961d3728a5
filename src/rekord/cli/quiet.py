"""What frameworks say of themselves while they load, kept from stderr; all else that is said comes through."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
# What goes wrong is raised as an exception too; as an error it also logs which of its ways to add numbers it takes.
_ONLY_FATAL = "3"
# Notes and warnings in the two forms of TensorFlow's log, and the lines that come with them. Of its own variable
# TensorFlow takes no notice before its log is set up, so that nothing but the stream is left to hold on to.
_CHATTER = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog|[IW]\d{4} \d\d:\d\d:[\d.]+ .*\]"
    rb"|\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: [IW] |To enable the following instructions: "
)


@contextmanager
def quiet_start() -> Iterator[None]:
    """In this block notes in TensorFlow's log do not reach stderr, unless the user has said what is to be logged."""
    if _VARIABLE in os.environ or not _is_plain(2):
        yield
        return
    os.environ[_VARIABLE] = _ONLY_FATAL
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            said.seek(0)
            for line in said:
                if not _CHATTER.match(line):
                    os.write(2, line)


def _is_plain(number: int) -> bool:
    """Whether Python's stderr is the process's own, so that both can be held at once."""
    try:
        return sys.stderr is not None and sys.stderr.fileno() == number
    except (OSError, ValueError, AttributeError):
        return False
