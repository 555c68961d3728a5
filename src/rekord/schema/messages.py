"""How a schema says no: one way to build its errors."""

from __future__ import annotations

from rekord.errors import RekordError, error, near_miss, near_misses, shown
from rekord.location import Location

__all__ = ["near_miss", "near_misses", "not_examples", "refuse", "shown"]


def refuse(
    code: str,
    what: str,
    *,
    column: str | None = None,
    expected: str,
    found: str,
    do: str,
) -> RekordError:
    """The error for a schema that cannot be; every part of the message is owed to the reader."""
    return error(code, what, location=Location(feature=column), expected=expected, found=found, do=do)


def not_examples(what: str) -> RekordError:
    """The error for something that only records of features have."""
    return error(
        "S127",
        f"payloads that are not Examples have no features for {what}",
        expected="a schema of columns",
        found="Payload(): each payload as it is",
        do="tf.data.TFRecordDataset(files), or rk.records(path), gives the payloads; parse them as their own message",
    )
