"""Logging: the logger `rekord`, which is silent until the application configures it."""

from __future__ import annotations

import logging

logging.getLogger("rekord").addHandler(logging.NullHandler())


def get_logger(module: str) -> logging.Logger:
    """The logger of a module, below `rekord`: INFO is about runs and files, DEBUG about single steps."""
    return logging.getLogger(module)
