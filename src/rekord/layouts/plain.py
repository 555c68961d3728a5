"""Rows as they are, under a schema that somebody declared; images and masks are looked at on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rekord.codec.looking import Picture
from rekord.codec.masks import look_at_mask, same_size
from rekord.layouts.base import Derived, Remark, Verify
from rekord.layouts.looks import looked_at
from rekord.schema import Image, Mask, Schema


@dataclass(frozen=True)
class Plain:
    """The layout of rows that have a schema and no other."""

    schema: Schema

    @property
    def name(self) -> str:
        return "plain"

    def options(self) -> Mapping[str, Any]:
        return {}

    @cached_property
    def looks(self) -> bool:
        """Whether there are pictures among the columns."""
        return bool(self._images or self._masks)

    @cached_property
    def _images(self) -> dict[str, Image]:
        return {name: one for name, one in self.schema.context.items() if isinstance(one, Image)}

    @cached_property
    def _masks(self) -> dict[str, tuple[Mask, str]]:
        """Each mask, and the column of the image that it covers."""
        return {
            name: (one, one.of or next(iter(self._images)))
            for name, one in self.schema.context.items()
            if isinstance(one, Mask)
        }

    def derive(self, row: Mapping[str, Any], verify: Verify) -> Derived:
        """The row with its pictures looked at. What is missing or unknown is left for the encoder to judge."""
        values = dict(row)
        remarks: list[Remark] = []
        images: dict[str, Picture] = {}
        for name, image in self._images.items():
            if (value := row.get(name)) is not None:
                images[name] = picture = looked_at(value, image, name=name, verify=verify)
                values[name] = picture.data
                remarks += [Remark(code, name, what) for code, what in picture.remarks]
        for name, (mask, of) in self._masks.items():
            if (value := row.get(name)) is not None:
                picture = look_at_mask(
                    value, name=name, classes=mask.classes, ignore=mask.ignore, verify=verify
                )
                if of in images:
                    same_size(images[of], picture, name=name)
                values[name] = picture.data
                remarks += [Remark(code, name, what) for code, what in picture.remarks]
        return Derived(values, tuple(remarks))
