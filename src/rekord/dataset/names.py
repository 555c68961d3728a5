"""What file names say: which split a record file belongs to, and whether a set of shards is complete."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence

from rekord.errors import error
from rekord.location import Location

_NUMBERED = re.compile(
    r"^(?P<before>.*?)(?P<mark>[-_.])(?P<shard>\d{3,})-of-(?P<shards>\d{3,})(?P<after>.*)$"
)
_EXTENSIONS = re.compile(r"(\.(tfrecords?|records?|tfrec|tfr|gz|zz|zlib))+$", re.IGNORECASE)
_SPLIT_STEMS = frozenset({"train", "val", "valid", "validation", "dev", "eval", "test"})


def splits_of(paths: Sequence[str], root: str | None) -> dict[str, list[str]]:
    """The files of each split, in the order of the paths. `root` is the folder that was opened, if one was."""
    splits: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        splits[split_of(path, root)].append(path)
    return dict(splits)


def split_of(path: str, root: str | None) -> str:
    """The split that a name belongs to.

    A parent `Split-x`, as TFX writes; else the part before `-SSSSS-of-NNNNN`; else the folder below the root; else
    a stem that is the name of a split; else `all`.
    """
    folder, name = os.path.split(path)
    numbered = _NUMBERED.match(name)
    parent = os.path.basename(folder)
    if parent.lower().startswith("split-") and len(parent) > len("split-"):
        return parent[len("split-") :]
    if numbered is not None:
        stem = _EXTENSIONS.sub("", numbered["before"])
        if stem:
            return stem
    if root is not None and parent and os.path.normpath(folder) != os.path.normpath(root):
        return parent
    stem = _EXTENSIONS.sub("", name)
    return stem if stem.lower() in _SPLIT_STEMS else "all"


def check_complete(paths: Sequence[str]) -> None:
    """Raise where a set of `-SSSSS-of-NNNNN` files lacks some of its shards."""
    sets: dict[tuple[str, str, str], dict[int, str]] = defaultdict(dict)
    for path in paths:
        folder, name = os.path.split(path)
        numbered = _NUMBERED.match(name)
        if numbered is not None:
            before = os.path.join(folder, numbered["before"]) + numbered["mark"]
            sets[before, numbered["shards"], numbered["after"]][int(numbered["shard"])] = path
    for (before, shards, after), have in sets.items():
        missing = sorted(set(range(int(shards))) - have.keys()) if int(shards) <= 1_000_000 else []
        if missing:
            width = len(shards)
            raise error(
                "X505",
                f"{len(have):,} of {int(shards):,} shards are here",
                location=Location(path=f"{before}*-of-{shards}{after}"),
                expected=f"shards 0 to {int(shards) - 1:,}",
                found=f"no {before}{missing[0]:0{width}d}-of-{shards}{after}"
                + (f", and {len(missing) - 1:,} more missing" if len(missing) > 1 else ""),
                do="fetch the missing files, or open with allow_missing=True",
            )
