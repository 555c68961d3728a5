"""Images with their masks as rows, whatever it was that paired them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.refuse import shown
from rekord.sources.base import PART_BYTES, Facts, Part, Row, SourceFile
from rekord.sources.trees import SPLITS, fingerprint, groups, joined, name_error, printable

_SHOWN = 60


class Pair(NamedTuple):
    """One row to be: an image and its mask, each below its root; or a `code`, and what its message names.

    The row is known by `path` and `position`, which are those of a list's line where a list names the image.
    """

    path: str
    image: str | None
    mask: str | None
    filename: str
    size_bytes: int
    split: str | None = None
    position: int = 0
    line: int | None = None
    code: str | None = None
    other: str = ""


class Paired(NamedTuple):
    """What a look at the folders gave: rows in order, and what the layout should know."""

    pairs: list[Pair]
    files: list[SourceFile]
    classes: tuple[str, ...] | None
    hints: Mapping[str, Any]


@dataclass(frozen=True)
class PairSource:
    """What the sources of segmentation share. A subclass names its kind, and pairs its files in `_list`.

    The hints that facts give to the layout, where they are known: `classes` (how many), `ignore`, `colours`
    (a colour to its id) and `optional_masks`.
    """

    root: str

    @property
    def kind(self) -> str:
        raise NotImplementedError

    @property
    def mask_root(self) -> str:
        """The folder that masks are below."""
        return self.root

    def options(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def _list(self) -> Paired:
        raise NotImplementedError

    def facts(self) -> Facts:
        paired = self._list()
        # Facts and parts must speak of the same files, and the next facts of what is there then.
        self.__dict__["_listed"] = paired
        splits = {pair.split for pair in paired.pairs if pair.split is not None}
        return Facts(
            layout="deeplab",
            classes=paired.classes,
            rows=len(paired.pairs),
            source_bytes=sum([pair.size_bytes for pair in paired.pairs]),
            splits=tuple(sorted(splits, key=_split_order)) or None,
            files=fingerprint(paired.files),
            extra=paired.hints,
        )

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[Part]:
        paired: Paired = self.__dict__.get("_listed") or self._list()
        sized = ((pair, pair.size_bytes) for pair in paired.pairs)
        return [Part(pairs, size) for pairs, size in groups(sized, part_bytes)]

    def read(self, part: Part) -> Iterator[Row]:
        root, mask_root = Path(self.root), Path(self.mask_root)
        for pair in part.content:
            values: dict[str, Any] | RekordError
            if pair.code is not None:
                values = self._fault(pair)
            else:
                values = {"image": root / pair.image, "filename": pair.filename}
                if pair.mask is not None:
                    values["mask"] = mask_root / pair.mask
                if pair.split is not None:
                    values["split"] = pair.split
            yield Row(printable(pair.path), pair.position, values, pair.line)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _fault(self, pair: Pair) -> RekordError:
        where = Location(path=joined(self.root, pair.path), line=pair.line)
        other = printable(pair.other)
        other = other if len(other) <= _SHOWN else "…" + other[1 - _SHOWN :]
        match pair.code:
            case "E318" if pair.line is not None:
                return error(
                    "E318",
                    "a line is not UTF-8",
                    location=where.within(feature="filename"),
                    expected="UTF-8",
                    found=shown(os.fsencode(pair.other)[:16]),
                    do="save the list as UTF-8",
                )
            case "E318":
                return name_error(self.root, pair.path)
            case "E360":
                return error(
                    "E360",
                    "an image that a list names is missing",
                    location=where.within(feature="image"),
                    expected=f"an image called {other}",
                    found="no such file",
                    do="fetch the image, or take the line out of the list",
                )
            case "E362":
                return error(
                    "E362",
                    "an image is listed twice",
                    location=where.within(feature="image"),
                    expected="each image in one list, once",
                    found=f"also in {other}",
                    do="remove one of the two lines: the image would be in the dataset twice",
                )
            case "E363":
                return error(
                    "E363",
                    "an image has no mask",
                    location=where.within(feature="mask"),
                    expected=f"a mask called {other}",
                    found="no such file",
                    do="add the mask, or optional_masks=True if images may be without",
                )
            case "E364":
                return error(
                    "E364",
                    "a mask has no image",
                    location=where.within(feature="image"),
                    expected=f"an image called {other}, with the extension of any picture",
                    found="no such file",
                    do="add the image, or move the mask away",
                )
        return error(
            "E365",
            f"two {'masks' if pair.image is None else 'images'} have one name",
            location=where.within(feature="mask" if pair.image is None else "image"),
            expected="one file of this name, whatever its extension: it pairs image and mask",
            found=f"also {other}",
            do="move one of the two files away",
        )


def _split_order(name: str) -> tuple[int, str]:
    return (SPLITS.index(name) if name in SPLITS else len(SPLITS)), name
