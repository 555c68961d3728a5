"""Whether the files of a source have the same columns, and which one differs where they do not."""

from __future__ import annotations

from collections.abc import Sequence

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.sources.base import SourceFile
from rekord.sources.files import Listing
from rekord.sources.tables import TableColumn


def check_same(
    listing: Listing, file: SourceFile, first: Sequence[TableColumn], others: Sequence[TableColumn]
) -> None:
    """Raise X523 where a file's columns are not those of the first file, in whatever order."""
    expected = {column.name: column.feature for column in first}
    found = {column.name: column.feature for column in others}
    for name in dict.fromkeys([*expected, *found]):
        if expected.get(name) != found.get(name):
            wanted, there = expected.get(name), found.get(name)
            raise inconsistent(
                listing,
                file,
                name,
                expected="no such column" if wanted is None else repr(wanted),
                found="no such column" if there is None else repr(there),
            )


def inconsistent(
    listing: Listing, file: SourceFile, column: str, *, expected: str, found: str
) -> RekordError:
    """The error for a file whose columns are not those of the first one."""
    return error(
        "X523",
        f"`{column[:60]}` is not the same in all files",
        location=Location(path=listing.full(file), feature=column[:60]),
        expected=f"{expected[:80]}, as in {listing.files[0].path}",
        found=found[:80],
        do="write the files of each kind to a dataset of its own: name them by a pattern",
    )
