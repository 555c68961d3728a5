"""What stands beside labels and says the same in words: texts in the records, the layout, label maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rekord.errors import RekordError
from rekord.schema import Schema, Text
from rekord.schema.labelmap import label_map_text
from rekord.verbs.append import layout_from
from rekord.verbs.relabel_classes import Changed
from rekord.verbs.remaking import Old

_LABEL_MAP = "label_map.pbtxt"


@dataclass(frozen=True)
class Companions:
    """What is to be changed beside the labels."""

    texts: Mapping[str, Mapping[int, str]] = field(default_factory=dict)  # by column, then by class
    options: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def companions_of(old: Old, changed: Changed, schema: Schema) -> Companions:
    """The companions of the labels of a dataset that a layout tells of; `schema` is that of the new one."""
    assert old.manifest is not None
    told = old.manifest.options.get("layout")
    layout = told if isinstance(told, dict) else {}
    column, name = changed.after.column, layout.get("name")
    texts: dict[str, Mapping[int, str]] = {}
    notes: list[str] = []
    new: dict[str, Any] | None = None
    if name == "classification" and column == "label" and changed.after.names:
        texts["text"] = changed.after.names
        new, synsets = _classification(layout, changed)
        if synsets is not None:
            texts["synset"] = synsets
    elif name == "detection" and column == "labels":
        texts["class_names"] = changed.after.names
        new = {**layout, "classes": [[number, one] for number, one in sorted(changed.after.names.items())]}
    texts = {one: by_id for one, by_id in texts.items() if isinstance(schema.context.get(one), Text)}
    if changed.after == changed.before:
        return Companions(texts, notes=tuple(notes))
    files: dict[str, bytes] = {}
    if _LABEL_MAP in old.manifest.companions:
        if new is not None and name == "detection":
            files[_LABEL_MAP] = label_map_text(changed.after.names).encode()
        else:
            notes.append(f"{_LABEL_MAP} was left as it is: it may name classes that are not there any more")
    options: dict[str, Any] = {}
    if layout and name != "plain":
        options["layout"] = new if new is not None and _gives(new, schema) else None
    return Companions(texts, options, files, tuple(notes))


def _classification(
    layout: Mapping[str, Any], changed: Changed
) -> tuple[dict[str, Any] | None, dict[int, str] | None]:
    """The layout with the new classes, and the synset of each class that has one."""
    first = 0 if layout.get("zero_based") else 1
    names = [name for number, name in changed.after.names.items() if number >= first]
    before = layout.get("synsets")
    if not isinstance(before, list):
        return {**layout, "classes": names}, None
    by_id = {
        new: str(before[old - first])
        for new, old in changed.origin.items()
        if first <= old < len(before) + first
    }
    whole = [by_id.get(number) for number in changed.after.names if number >= first]
    return (None if None in whole else {**layout, "classes": names, "synsets": whole}), by_id


def _gives(layout: Mapping[str, Any], schema: Schema) -> bool:
    """Whether the columns of a layout are those of a schema, so that rows can still be appended by it."""
    try:
        return not layout.get("transforms") and layout_from(layout).schema == schema
    except (KeyError, TypeError, ValueError, AttributeError, RekordError):
        return False
