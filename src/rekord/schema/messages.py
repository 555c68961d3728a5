"""How a schema says no: one way to build its errors."""

from __future__ import annotations

from rekord.errors import RekordError, closest_match, closest_matches, error, preview
from rekord.location import Location

__all__ = ["closest_match", "closest_matches", "not_examples_error", "preview", "schema_error"]


def schema_error(
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


def not_examples_error(what: str) -> RekordError:
    """The error for something that only records of features have."""
    return error(
        "S127",
        f"payloads that are not Examples have no features for {what}",
        expected="a schema of columns",
        found="Payload(): each payload as it is",
        do="tf.data.TFRecordDataset(files), or rk.records(path), gives the payloads; parse them as their own message",
    )
