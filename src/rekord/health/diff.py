"""`rk.diff`: what changed between two datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rekord.storage.files import PathLike

if TYPE_CHECKING:
    from rekord.health.diff_report import Diff


def diff(
    a: PathLike | Sequence[PathLike],
    b: PathLike | Sequence[PathLike],
    *,
    key: str | None = None,
    read: bool = False,
) -> Diff:
    """Compare two datasets, record files, folders or globs: A is the older one, B the newer.

    Records are compared by what they hold, as bags: added ones are in B only, removed ones in A only. With a `key`,
    a column or record key of one whole number or byte string, records of the same key that hold something else are
    changed. Where both manifests name the same key, that is the key. Order, sharding, compression and the order of
    keys inside records make no difference; remarks tell of them.

    Two manifests that list the same checksums are taken at their word, if the files are as long as they say;
    `read` reads them all the same.
    """
    # Loaded when it is asked for: most programs that import rekord compare nothing.
    from rekord.health.diff_compare import compare_sides
    from rekord.health.diff_sides import open_side
    from rekord.health.finding import Report

    return compare_sides(open_side(a), open_side(b), key=key, read=read, report=Report())
