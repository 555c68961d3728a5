"""What a person gave, as a source; and the layout that fits it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rekord.arguments import one_of
from rekord.dataset.dataset import Dataset
from rekord.dataset.manifest import manifest_path
from rekord.errors import RekordError, error
from rekord.layouts.base import Layout, PlainLayout
from rekord.layouts.classification import classification
from rekord.layouts.deeplab import deeplab
from rekord.layouts.detection import detection
from rekord.schema import Schema
from rekord.sources.base import Source, SourceFacts
from rekord.sources.frameworks import find_framework_source, huggingface
from rekord.sources.records import RecordsSource
from rekord.sources.rows import rows as rows_source

LAYOUTS = ("auto", "classification", "deeplab", "detection", "table", "text")


class MaskOptions(NamedTuple):
    """What a person says of masks, in place of what the source knows; None where nothing is said."""

    classes: int | None = None
    ignore: int | Literal["as the source"] | None = "as the source"
    colours: Mapping[tuple[int, int, int], int] | None = None


DEFAULT_MASK_OPTIONS = MaskOptions()


def resolve_source(
    rows: Any,
    *,
    names: Sequence[str] | None = None,
    layout: str | None = None,
    schema: Schema | None = None,
) -> Source:
    """The source that an object is, or that is made of it.

    `layout` decides where a path can be several sources, `schema` says how record files are read.
    """
    if hasattr(rows, "facts") and (hasattr(rows, "parts") or hasattr(rows, "rows")):
        return attach_schema(rows, schema)
    if isinstance(rows, (str, os.PathLike)):
        from rekord.sources.detect import detect_source

        return attach_schema(detect_source(rows, layout=layout), schema, os.fspath(rows))
    framework = find_framework_source(rows)
    if framework is not None:
        named = names is not None and framework is not huggingface  # whose columns have names already
        return framework(rows, names=names) if named else framework(rows)  # type: ignore[no-any-return]
    module = type(rows).__module__.split(".")[0]
    if module == "pyarrow":
        from rekord.sources.arrow import arrow

        return arrow(rows)
    if module in ("pandas", "polars") and hasattr(rows, "columns"):
        from rekord.sources import pandas, polars

        return pandas(rows) if module == "pandas" else polars(rows)
    if isinstance(rows, Dataset):
        return rows_source(rows.only_split("write"), names=names)
    if isinstance(rows, Mapping):
        from rekord.sources.arrays import columns

        return columns(rows)
    return rows_source(rows, names=names)


def attach_schema(source: Source, schema: Schema | None = None, path: str | None = None) -> Source:
    """The source; where it is of records that nothing describes, with a schema: the one given, or inferred."""
    if not isinstance(source, RecordsSource) or source.schema is not None:
        return source
    from rekord.dataset.dataset import open as open_dataset
    from rekord.sources.records import records

    dataset = open_dataset(source.paths if path is None else path, schema)
    splits = {file: name for name in dataset.splits for file in dataset[name].paths}
    known = None if set(splits.values()) == {"all"} else splits
    # An inferred schema claims to know every key, so that a record with another one is a bad row.
    declared = schema is not None or (path is not None and os.path.isfile(manifest_path(path)))
    return records(list(splits), dataset.schema, splits=known, strict=not declared)


def choose_layout(
    source: Source, facts: SourceFacts, name: str | None, masks: MaskOptions = DEFAULT_MASK_OPTIONS
) -> Layout:
    """The layout of this name, or the one that fits the source, with what the source knows of classes."""
    if name is not None:
        one_of("layout", name, LAYOUTS, do='layout="auto"')
    wanted = facts.layout if name in (None, "auto") else name
    if wanted in ("table", "text"):
        return PlainLayout(_get_schema(source, facts))
    if wanted != facts.layout:
        raise _layout_mismatch_error(source, facts, str(wanted))
    classes = facts.classes
    if wanted == "classification":
        return classification(classes=classes, optional_labels=bool(facts.extra.get("optional_labels")))
    if wanted == "deeplab":
        colours = facts.extra.get("colours") if masks.colours is None else masks.colours
        return deeplab(
            classes=masks.classes or facts.extra.get("classes") or (len(classes) if classes else 21),
            ignore=facts.extra.get("ignore", 255) if masks.ignore == "as the source" else masks.ignore,
            colours=colours,
            optional_masks=bool(facts.extra.get("optional_masks")),
        )
    return detection(
        classes=_get_names_by_id(facts),
        has=tuple(facts.extra.get("has", ())),
        masks=bool(facts.extra.get("masks")),
    )


def _get_names_by_id(facts: SourceFacts) -> dict[int, str]:
    names = facts.classes or ()
    ids = facts.class_ids or range(1, len(names) + 1)
    return dict(zip(ids, names, strict=True))


def _get_schema(source: Any, facts: SourceFacts) -> Any:
    if facts.schema is not None:
        return facts.schema
    inner = getattr(source, "source", source)
    if hasattr(inner, "peek_schema"):
        return inner.peek_schema()
    raise _layout_mismatch_error(source, facts, "table")


def _layout_mismatch_error(source: Any, facts: SourceFacts, wanted: str) -> RekordError:
    return error(
        "U676",
        f"a source of the kind {source.kind} has no rows for the layout {wanted!r}",
        expected=f"a source that fits it; this one fits {facts.layout!r}",
        found=source.kind,
        do="leave layout= out, or choose another source of rk.sources",
    )
