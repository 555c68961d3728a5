"""Which keys of a dataset are its content: what nobody expects to meet twice."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rekord import _core
from rekord._core import Colour, PictureFormat
from rekord.health.keyed import KeyColumn, KeyedBatch
from rekord.schema import Image, Mask, Schema, Tensor

LARGE_BYTES = 256
"""Images of fewer bytes on average are icons or the like, and repeat by nature."""

_LOOKED_AT = 8
_MASK_NAME = re.compile(r"mask|segmentation", re.IGNORECASE)
_IDENTITY_NAME = re.compile(
    r"(?:.*[/_])?(?:id|uid|uuid|guid|filename)|(?:.*/)?(?:key|path)|index", re.IGNORECASE
)
_IDENTITY_SHARE = 0.9  # of the values of an identity are different, at least


@dataclass(frozen=True, slots=True)
class ContentKey:
    """One key whose values are compared on their own."""

    key: str
    in_steps: bool
    is_image: bool  # declared to be one, or recognised by its bytes; else a tensor that a schema declares


def identity_keys(batch: KeyedBatch, schema: Schema | None, column: str | None) -> frozenset[str]:
    """The keys that only tell records apart: those of the column that was named, and what looks like one.

    That is a name such as `image/source_id` whose values differ from record to record. The `user_id` of a table of
    ratings is named like that too, and is data.
    """
    keys = [
        key
        for key, values in batch.context.items()
        if _IDENTITY_NAME.fullmatch(key) and _distinct(values) >= _IDENTITY_SHARE * values.present
    ]
    if column is not None:
        feature = None if schema is None else schema.get(column)
        keys += [column] if feature is None else feature.record_keys(column)
    return frozenset(keys)


def _distinct(column: KeyColumn) -> int:
    if isinstance(column.values, _core.StringColumn):
        return len(set(column.values.list_bytes(0, len(column.values))))
    return len(np.unique(column.values))


def content_keys(batch: KeyedBatch, schema: Schema | None, identity: frozenset[str]) -> list[ContentKey]:
    """The content of records like these: images, and the tensors of a schema; a mere table has none.

    Other bytes are no content, however large: questions share their paragraph, and recordings their calibration.
    """
    declared, masks = _declared(schema)
    found = [one for one in declared if one.key in (batch.steps if one.in_steps else batch.context)]
    known = {(one.key, one.in_steps) for one in declared} | masks
    steps = {key: column.steps for key, column in batch.steps.items()}
    for in_steps, columns in ((False, batch.context), (True, steps)):
        pictures = {key: _picture(column) for key, column in columns.items() if _is_large(column)}
        coloured = any(picture is True for picture in pictures.values())
        for key, picture in sorted(pictures.items()):
            if (key, in_steps) in known or key in identity or _MASK_NAME.search(key):
                continue
            if picture is False and coloured:
                continue  # grey PNGs beside pictures in colour are masks or depths: many are alike
            if picture is not None:
                found.append(ContentKey(key, in_steps, is_image=True))
    return sorted(found, key=lambda one: (one.in_steps, one.key))


def _declared(schema: Schema | None) -> tuple[list[ContentKey], set[tuple[str, bool]]]:
    if schema is None:
        return [], set()
    content, masks = [], set()
    groups: tuple[tuple[bool, Mapping[str, object]], ...] = ((False, schema.context), (True, schema.steps))
    for in_steps, columns in groups:
        for column, feature in columns.items():
            if isinstance(feature, (Image, Tensor)):
                key = feature.record_keys(column)[0]
                content.append(ContentKey(key, in_steps, is_image=isinstance(feature, Image)))
            elif isinstance(feature, Mask):
                masks.add((feature.record_keys(column)[0], in_steps))
    return content, masks


def _is_large(column: KeyColumn) -> bool:
    if column.kind != "bytes" or not column.present:
        return False
    return int(column.values.total_bytes) >= LARGE_BYTES * column.present


def _picture(column: KeyColumn) -> bool | None:
    """Whether the first values are pictures that masks are not: in colour, or no PNG. None: they are no pictures."""
    coloured, seen = False, 0
    for i in range(min(len(column.values), _LOOKED_AT)):
        data = column.values.bytes(i)
        if data:
            facts = _core.look(data, False)
            if facts.format == PictureFormat.NONE:
                return None
            seen += 1
            is_grey = facts.colour in (Colour.GREY, Colour.PALETTE)
            coloured = coloured or facts.format != PictureFormat.PNG or not is_grey
    return coloured if seen else None
