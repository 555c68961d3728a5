"""The `rekord` command. Here: Ctrl-C on the command line, while the command loads, works and ends."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

_INTERRUPTED = 130


def run_process() -> int:
    """Run the command line of this process and return its exit code."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        # Ignored, as a shell does for its background jobs, or handled by the program that calls this.
        from rekord.cli.main import run_command_line as run_main

        return run_main(leave=os._exit)
    signal.signal(signal.SIGINT, _exit_now)
    from rekord.cli.main import run_command_line as run_main

    signal.signal(signal.SIGINT, _interrupt)
    code = None
    try:
        code = run_main(leave=os._exit)
        return code
    finally:
        # Everything is done or reported: Python need not clean up. A second interrupt prints nothing more.
        signal.signal(signal.SIGINT, signal.SIG_DFL if code == _INTERRUPTED else _exit_now)


def _exit_now(number: int, frame: FrameType | None) -> None:
    """End the process immediately, when there is nothing to clean up."""
    if sys.stderr is not None:
        os.write(2, b"interrupted\n")  # not through a buffer, whose own write this may interrupt
    os._exit(_INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, after the import in progress.

    An extension module that is interrupted while it is imported raises an ImportError instead, prints its own
    traceback, or stays half loaded.
    """
    importer = _find_importing_frame(frame)
    if importer is None:
        raise KeyboardInterrupt
    # A second interrupt does not wait.
    signal.signal(signal.SIGINT, _exit_now)
    importer.f_trace = _raise_interrupt
    sys.settrace(_ignore_event)


def _find_importing_frame(frame: FrameType | None) -> FrameType | None:
    """The frame whose import is in progress, the outermost if there are several; None if there is none."""
    importer = None
    while frame is not None and frame.f_code is not run_process.__code__:
        if frame.f_code.co_filename.startswith("<frozen importlib") and frame.f_back is not None:
            importer = frame.f_back
        frame = frame.f_back
    return importer


def _raise_interrupt(frame: FrameType, event: str, value: Any) -> None:
    sys.settrace(None)
    signal.signal(signal.SIGINT, _interrupt)
    raise KeyboardInterrupt


def _ignore_event(frame: FrameType, event: str, value: Any) -> None:
    return None
