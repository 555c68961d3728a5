"""What file names say: which split a record file belongs to, and whether a set of shards is complete."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rekord.errors import error
from rekord.location import Location

_NUMBERED = re.compile(
    r"^(?P<before>.*?)(?P<mark>[-_.])(?P<shard>\d{3,})-of-(?P<shards>\d{3,})(?P<after>.*)$"
)
_EXTENSIONS = re.compile(r"(\.(tfrecords?|records?|tfrec|tfr|gz|zz|zlib))+$", re.IGNORECASE)
_COMPRESSED = re.compile(
    r"[._-](?:(?P<gzip>gz|gzip)|(?P<zlib>zz|zlib))(?:[-_.]\d{3,}-of-\d{3,})?(?:\.(?:tfrecords?|records?|tfrecs?|tfr))?$",
    re.IGNORECASE,
)
SPLIT_STEMS = frozenset({"train", "val", "valid", "validation", "dev", "eval", "test"})
_MOST_SHARDS = 1_000_000  # a larger number in a name counts something else


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
    # A file that was recognised by its content may end in anything.
    stems = _EXTENSIONS.sub("", name), os.path.splitext(name)[0]
    return next((stem for stem in stems if stem.lower() in SPLIT_STEMS), "all")


def compression_in_name(path: str) -> str | None:
    """The compression that a name says: `x.tfrecord.gz`, `x.tfrecord.gz-00000-of-00003`, `x.gz.tfrecord`; or None."""
    found = _COMPRESSED.search(os.path.basename(path))
    return None if found is None else found.lastgroup


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSet:
    """The files of one `-SSSSS-of-NNNNN` set that are there, by their numbers."""

    before: str  # folder and name, up to the number
    shards: str  # how many there are, as the names say it
    after: str
    paths: dict[int, str]

    @property
    def pattern(self) -> str:
        """The name that stands for all of them."""
        return f"{self.before}*-of-{self.shards}{self.after}"

    @property
    def count(self) -> int:
        """How many shards the names say there are."""
        return int(self.shards)

    @property
    def present(self) -> list[int]:
        """The numbers of the shards that are there."""
        return sorted(number for number in self.paths if number < self.count)

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The shards that are not there, as (first, last) of each run; none of a set that is too large to be one."""
        if self.count > _MOST_SHARDS:
            return []
        runs, expected = [], 0
        for number in [*self.present, self.count]:
            if number > expected:
                runs.append((expected, number - 1))
            expected = number + 1
        return runs

    def name(self, number: int) -> str:
        """The path of one shard, there or not."""
        return f"{self.before}{number:0{len(self.shards)}d}-of-{self.shards}{self.after}"


def shard_sets(paths: Iterable[str]) -> list[ShardSet]:
    """The sets of numbered shards that some files belong to; other files belong to none."""
    sets: dict[tuple[str, str, str], dict[int, str]] = defaultdict(dict)
    for path in paths:
        folder, name = os.path.split(path)
        numbered = _NUMBERED.match(name)
        if numbered is not None:
            before = os.path.join(folder, numbered["before"]) + numbered["mark"]
            sets[before, numbered["shards"], numbered["after"]][int(numbered["shard"])] = path
    return [
        ShardSet(before=before, shards=shards, after=after, paths=have)
        for (before, shards, after), have in sets.items()
    ]


def check_complete(paths: Sequence[str]) -> None:
    """Raise where a set of `-SSSSS-of-NNNNN` files lacks some of its shards."""
    for one in shard_sets(paths):
        runs = one.missing
        if runs:
            missing = sum(last - first + 1 for first, last in runs)
            raise error(
                "X505",
                f"{one.count - missing:,} of {one.count:,} shards are here",
                location=Location(path=one.pattern),
                expected=f"shards 0 to {one.count - 1:,}",
                found=f"no {one.name(runs[0][0])}"
                + (f", and {missing - 1:,} more missing" if missing > 1 else ""),
                do="fetch the missing files, or open with allow_missing=True",
            )
