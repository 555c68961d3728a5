"""Declared columns of `rk.write`: `columns=`, `label=`, `drop=`, `keep=`, and a schema that must cover the data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa

from rekord.arguments import conflicting_options, inapplicable, invalid, optional_names
from rekord.conversion.class_ids import ClassCollector, ClassIds, ColumnConversions, sort_classes
from rekord.conversion.mapped_rows import FirstOutputs, peek_outputs, spread_rows
from rekord.conversion.plan import RowFunction
from rekord.conversion.splits import SPLIT_COLUMN
from rekord.dataset.dataset import open as open_dataset
from rekord.errors import RekordError, closest_match, error, preview
from rekord.layouts.base import Layout, PlainLayout, SelectedLayout
from rekord.layouts.classification import add_background, classification
from rekord.location import Location
from rekord.schema import Feature, Label, MultiLabel, Schema, Text
from rekord.sources.arrays import DataFrameSource
from rekord.sources.base import Source, SourceFacts, SourceRow, UnusedInput, is_partitioned, read_part
from rekord.sources.boxes_csv import BoxesCsvSource
from rekord.sources.csv import CsvSource, GzipCsvSource
from rekord.sources.csv import csv as read_csv
from rekord.sources.image_csv import ImageCsvSource
from rekord.sources.jsonl import GzipJsonSource, JsonSource
from rekord.sources.records import RecordsSource
from rekord.sources.rows import RowsSource
from rekord.sources.table_files import ArrowTableSource, TableFiles
from rekord.sources.value_tables import ValueTable
from rekord.sources.wrapped import add_path_columns
from rekord.transforms.base import rebuild_schema
from rekord.verbs.learning import find_own_order, learn_classes, require_classes, spool_if_once
from rekord.verbs.options import WriteOptions

_TEXT = Text()
_JSON_SOURCES = (JsonSource, GzipJsonSource)
_PATH_SOURCES = ("arrow", "columns", "csv", "jsonl", "pandas", "parquet", "polars")


@dataclass(frozen=True, kw_only=True)
class ColumnRequest:
    """What was requested about columns."""

    schema: Schema | None = None
    columns: Mapping[str, Feature] | None = None
    label: str | None = None
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] | None = None
    background: bool = False
    class_names: tuple[str, ...] | None = None  # by id, from a label map
    open_classes: tuple[str, ...] = ()  # labels of an existing dataset, to which new classes are added
    is_partial: bool = False  # columns that the schema lacks are left out
    needed: tuple[str, ...] = ()  # columns that splits depend on
    known: tuple[str, ...] | None = None  # all columns of the data, if some of them are not even read
    may_have_more: bool = False  # later rows may have columns that the first ones lack
    function: RowFunction | None = None
    outputs: FirstOutputs | None = None  # what the function returns, unless a schema declares it

    @classmethod
    def of(cls, options: WriteOptions, class_names: tuple[str, ...] | None, old: Mapping[str, Any]) -> ColumnRequest:
        """The request of `rk.write`; `old` are the columns that a dataset recorded, for `rk.append`."""
        needed = (options.split_by, options.stratify, options.key)
        return cls(
            schema=options.schema,
            columns=options.columns,
            label=options.label,
            drop=tuple(options.drop) or tuple(old.get("drop", ())),
            keep=tuple(old["keep"]) if options.keep is None and old.get("keep") else _optional(options.keep),
            background=options.background,
            class_names=class_names,
            open_classes=tuple(old.get("classes", ())),
            is_partial=bool(old),
            needed=tuple([name for name in needed if name is not None]),
            function=options.map,
        )

    @property
    def declared(self) -> dict[str, Feature]:
        """The declared columns, `label` included."""
        if self.schema is not None:
            return dict(self.schema.items())
        found = dict(self.columns or {})
        if self.label is not None:
            found.setdefault(self.label, Label())
        return found

    @property
    def is_empty(self) -> bool:
        return not (self.declared or self.drop or self.keep or self.background or self.class_names)

    def is_kept(self, name: str) -> bool:
        return name not in self.drop and (self.keep is None or name in self.keep)


def _optional(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def adapt_image_list(source: Source, options: WriteOptions) -> tuple[Source, WriteOptions]:
    """A CSV of images, with the named column as its label; or as a table, if its other columns are named."""
    if isinstance(source, BoxesCsvSource) and options.label not in (None, "labels"):
        return replace(source, label=options.label), replace(options, label=None)
    if not isinstance(source, ImageCsvSource) or options.schema is not None:
        return source, options
    if options.label is None and source.facts().layout == "table":
        return source, options
    is_image_list = source.kind == "image_csv"
    columns = set(classification(classes=["a"]).schema)
    if is_image_list and not columns.issuperset((*(options.columns or ()), *options.drop, *(options.keep or ()))):
        return (read_csv(source.path) if source.images is None else source), options
    if options.label in (None, "label"):
        return source, options
    renamed = tuple([(role, options.label if role == "label" else one) for role, one in source.columns])
    return replace(source, columns=renamed), replace(options, label=None)


def check_column_options(options: WriteOptions) -> None:
    """Refuse options about columns that exclude each other, or that are not what they should be."""
    for name in ("columns", "label"):
        if options.schema is not None and getattr(options, name) is not None:
            raise conflicting_options(
                name, "schema", expected="schema= for all columns, or columns= for some of them"
            )
    if options.drop and options.keep is not None:
        raise conflicting_options("drop", "keep")
    if options.columns is not None and not (
        isinstance(options.columns, Mapping)
        and all(isinstance(name, str) and isinstance(one, Feature) for name, one in options.columns.items())
    ):
        raise invalid("columns", options.columns, "a dict of features by column", 'columns={"zip": rk.Text()}')
    if options.label is not None and not isinstance(options.label, str):
        raise invalid("label", options.label, "the name of a column", 'label="species"')
    if options.label is not None and options.columns is not None and options.label in options.columns:
        feature = options.columns[options.label]
        if not feature.is_label:
            raise conflicting_options("label", "columns", expected="one declaration of a column")
    for name in ("drop", "keep"):
        value = getattr(options, name)
        if value is None:
            continue
        optional_names(name, value, example="id")
        for column in value if name == "drop" else ():
            if column == options.label or column in (options.columns or {}):
                raise conflicting_options("drop", "columns" if column != options.label else "label")


@dataclass(frozen=True, kw_only=True)
class DeclaredColumns:
    """A source with a layout for its columns, as they are declared."""

    source: Source
    facts: SourceFacts
    layout: Layout
    select: tuple[str, ...] | None  # the columns that the layout wants
    conversions: ColumnConversions | None = None


def project_source(source: Source, request: ColumnRequest) -> tuple[Source, ColumnRequest]:
    """The source without the columns that are left out, and with fields of text parsed as declared.

    A function of rows gets all columns, unchanged.
    """
    is_table = isinstance(source, (CsvSource, GzipCsvSource, *_JSON_SOURCES, TableFiles, ArrowTableSource))
    if request.function is not None or request.is_empty or not is_table:
        return source, request
    names = _list_columns(source)
    _check_names(request, names)
    request = replace(request, known=tuple(names))
    if isinstance(source, (CsvSource, GzipCsvSource)):
        return _project_csv(source, request, names), request
    if isinstance(source, _JSON_SOURCES):
        only = None if request.keep is None else (*request.keep, *request.needed)
        return replace(source, without=request.drop, only=only), request
    kept = tuple([name for name in names if request.is_kept(name) or name in request.needed])
    is_nested = any("/" in name for name in names)
    if isinstance(source, ValueTable):
        untyped = source.find_untyped()
        texts = [
            name
            for name, one in request.declared.items()
            if one.shape == () and (one.is_text or (one.is_label and name in untyped))
        ]
        source = replace(source, texts=tuple(texts))
    if len(kept) < len(names) and kept and not is_nested:
        assert isinstance(source, (TableFiles, ArrowTableSource))
        source = replace(source, columns=kept)
    return source, request


def _list_columns(source: Any) -> list[str]:
    if isinstance(source, (*_JSON_SOURCES, ValueTable)):
        return source.column_names()
    schema = source.facts().schema
    assert schema is not None
    return list(schema)


def _project_csv(source: CsvSource | GzipCsvSource, request: ColumnRequest, names: Sequence[str]) -> Source:
    requested = source.requested
    types = dict(requested.types)
    for name, feature in request.declared.items():
        if feature.reads_text and feature.shape == () and name in names:
            types[name] = feature
        elif (feature.is_image or feature.is_media) and name in names:
            types[name] = _TEXT
    types = {name: one for name, one in types.items() if request.is_kept(name)}
    keep = requested.keep
    if source.survey().header and not all(map(request.is_kept, names)):
        keep = tuple([name for name in names if request.is_kept(name) or name in request.needed])
    if keep == () or (keep == requested.keep and tuple(types.items()) == requested.types):
        return source
    return replace(source, requested=replace(requested, keep=keep, types=tuple(types.items())))


def _find_columns(source: Source, facts: SourceFacts, request: ColumnRequest) -> tuple[list[str], bool]:
    """The columns of the data, without that of splits, and whether later rows may have others."""
    inner: Any = source
    while hasattr(inner, "source"):
        inner = inner.source
    names: Iterable[str]
    complete = True
    if facts.schema is not None:
        names = facts.schema
        if isinstance(inner, RecordsSource) and request.schema is not None and not request.is_partial:
            names = [*names, *_find_unread_keys(inner, request.schema)]
    elif hasattr(inner, "peek_columns"):
        # For a schema the first row is enough: others are compared with it when they are written.
        names, complete = inner.peek_columns(1) if request.schema is not None else inner.peek_columns()
    else:
        names = _find_first_columns(source, inner)
    return [name for name in names if facts.splits is None or name != SPLIT_COLUMN], not complete


def _find_unread_keys(source: RecordsSource, schema: Schema) -> list[str]:
    """The keys of the first records that a schema does not read."""
    read = {key for name, one in schema.items() for key in one.record_keys(name)}
    try:
        stored = open_dataset(list(source.paths)).schema
    except RekordError:  # reading the records reports it
        return []
    return [name for name, one in stored.items() if read.isdisjoint(one.record_keys(name)) and name not in schema]


def _find_first_columns(source: Any, inner: Any) -> list[str]:
    """The columns of the first good row."""
    if isinstance(inner, DataFrameSource):
        return [str(name) for name in inner.frame]
    chunks = (
        (chunk for part in source.parts()[:1] for chunk in read_part(source, part))
        if is_partitioned(source)
        else None
    )
    for chunk in islice(source.rows() if chunks is None else chunks, 100):
        if isinstance(chunk, SourceRow):
            if not isinstance(chunk.values, RekordError):
                return list(chunk.values)
        else:
            return list(chunk.values.schema.names if isinstance(chunk.values, pa.RecordBatch) else chunk.values)
    return []


def declare_table(
    source: Source, facts: SourceFacts, request: ColumnRequest, *, out: str, staging: object, workers: int
) -> DeclaredColumns:
    """The columns of a table as they are declared: all of them by a schema, or some, and the rest inferred."""
    known = list(request.known or ())
    if request.function is not None:
        known, may_have_more = _find_output_columns(facts, request)
        request = replace(request, may_have_more=may_have_more)
    elif request.known is None:
        known, may_have_more = _find_columns(source, facts, request)
        request = replace(request, may_have_more=may_have_more)
    _check_names(request, known)
    declared = {name: one for name, one in request.declared.items() if request.is_kept(name)}
    if request.schema is not None:
        _check_covered(request, known)
        features = declared
        inferred = facts.schema if request.function is None else None
    else:
        inferred = _infer_schema(source, facts, request, known)
        names = [*(inferred or ()), *[name for name in declared if name not in (inferred or ())]]
        order = {name: i for i, name in enumerate(known)}
        names.sort(key=lambda name: order.get(name, len(order)))
        features = {name: _declare(name, declared, inferred) for name in names if request.is_kept(name)}
    unused = tuple([_unused_column(name, request) for name in known if not request.is_kept(name)])
    if not features:
        raise invalid(
            "drop" if request.drop else "keep",
            list(request.drop or request.keep or ()),
            "at least one column that is written",
            f"keep={known[:1]}",
            found="none",
        )
    paths = [] if request.function is not None else _find_path_columns(source, features, inferred, known)
    read, learned, conversions = _learn(source, facts, features, inferred, request, out, staging, workers)
    source = read
    if paths:
        source = add_path_columns(source, paths)
        facts = source.facts()
    facts = replace(facts, unused=(*facts.unused, *unused))
    features = {**features, **learned}
    schema = _rebuild(request.schema or inferred, features)
    select = None
    # Other rows must fit: a column that none of the first rows has would be lost silently.
    if (request.is_partial and inferred is not None) or facts.splits is not None:
        select = tuple(schema)
    return DeclaredColumns(
        source=source, facts=facts, layout=PlainLayout(schema), select=select, conversions=conversions
    )


def prepare_function(
    source: Source, facts: SourceFacts, request: ColumnRequest, *, workers: int, stop: bool, peek: bool
) -> tuple[Source, SourceFacts, ColumnRequest]:
    """The source as the function gets it; with `peek`, after it was applied to the first rows.

    Columns of paths that are declared as images are files for the function too.
    """
    assert request.function is not None
    if isinstance(source, RowsSource):
        source = source.for_function()
    elif facts.schema is not None:
        paths = _find_path_columns(source, request.declared, facts.schema, list(facts.schema))
        if paths:
            source = add_path_columns(source, paths)
            facts = source.facts()
    if not peek:
        return spread_rows(source, facts.source_bytes), facts, request
    source, outputs = peek_outputs(
        source, request.function, workers=workers, source_bytes=facts.source_bytes, stop=stop
    )
    return source, facts, replace(request, outputs=outputs)


def _find_output_columns(facts: SourceFacts, request: ColumnRequest) -> tuple[list[str], bool]:
    """The columns that the function returns, and whether later rows may have others."""
    if request.outputs is None:
        return [], True
    columns = request.outputs.columns
    return [name for name in columns if facts.splits is None or name != SPLIT_COLUMN], not request.outputs.complete


def _rebuild(schema: Schema | None, features: Mapping[str, Feature]) -> Schema:
    if schema is None:
        return Schema(features)
    if all(schema.get(name) is one for name, one in features.items()) and len(features) == len(schema):
        return schema
    known = {name: one for name, one in features.items() if name in schema or not schema.is_sequence}
    return rebuild_schema(schema, known)


def _infer_schema(source: Any, facts: SourceFacts, request: ColumnRequest, known: Sequence[str]) -> Schema | None:
    """The schema of the columns that are not declared, or of all if the source knows it."""
    if facts.schema is not None and request.function is None:
        return facts.schema
    inner = source
    while hasattr(inner, "source") and not hasattr(inner, "peek_schema"):
        inner = inner.source
    skipped = {name for name in (*known, *request.declared) if not request.is_kept(name)}
    skipped |= set(request.declared)
    if known and skipped.issuperset(known):
        return None
    if request.function is not None:
        assert request.outputs is not None
        skipped |= {SPLIT_COLUMN} if facts.splits is not None else set()
        return request.outputs.infer(skipped, facts.schema)
    if isinstance(inner, (RowsSource, DataFrameSource)):
        return inner.peek_schema(skip=skipped)
    schema: Schema = inner.peek_schema()
    return schema


def _declare(name: str, declared: Mapping[str, Feature], inferred: Schema | None) -> Feature:
    feature, known = declared.get(name), None if inferred is None else inferred.get(name)
    if feature is None:
        assert known is not None
        return known
    has_classes = known is not None and known.is_label and not known.has_unknown_classes
    if known is not None and has_classes and feature.has_unknown_classes:
        return known  # the data declares its classes
    return feature


def _find_path_columns(
    source: Source, features: Mapping[str, Feature], inferred: Schema | None, known: Collection[str]
) -> list[str]:
    """The columns of text that are declared as files. In rows of Python, a file is a pathlib.Path."""
    found: list[str] = []
    if source.kind not in _PATH_SOURCES:
        return found
    for name, feature in features.items():
        if (feature.is_image or feature.is_media) and name in known:
            seen = None if inferred is None else inferred.get(name)
            if seen is None or (seen.is_text and seen.shape == ()):
                found.append(name)
    return found


def _learn(
    source: Source,
    facts: SourceFacts,
    features: Mapping[str, Feature],
    inferred: Schema | None,
    request: ColumnRequest,
    out: str,
    staging: object,
    workers: int,
) -> tuple[Source, dict[str, Feature], ColumnConversions | None]:
    """The labels whose classes are learned, and what happens to the columns of rows."""
    unknown = [
        name
        for name, one in features.items()
        if one.is_label and (one.has_unknown_classes or name in request.open_classes)
    ]
    learned: dict[str, Feature] = {}
    classes: dict[str, ClassIds] = {}
    named = _choose_named(request, unknown, features)
    own = {} if request.function is not None else {name: find_own_order(source, name) for name in unknown}
    shapes = {name: one.shape for name, one in (inferred or {}).items()}
    passed = [name for name in unknown if own.get(name) is None and not (name in named and name in shapes)]
    found: dict[str, ClassCollector] = {}
    if passed:
        source = spool_if_once(source, out, staging)
        found = learn_classes(source, passed, request.function, workers=workers, source_bytes=facts.source_bytes)
    for name in unknown:
        feature = features[name]
        assert isinstance(feature, (Label, MultiLabel))
        names = own.get(name)
        if name in named:
            names = list(named[name])
        elif names is None:
            collector = found[name]
            if feature.has_unknown_classes:
                require_classes(collector)
            seen = None if inferred is None else inferred.get(name)
            if feature.has_unknown_classes and _is_multi_hot(collector, seen):
                learned[name] = MultiLabel(seen.shape[0], **_common(feature))  # type: ignore[union-attr]
                continue
            known = list(feature.names or ())
            # A new class would change the length of multi-hot vectors: it is reported with its row.
            new = () if known and isinstance(feature, MultiLabel) else collector.names.difference(known)
            names = [*known, *sort_classes(new)]
            if request.background and not known:
                names = list(add_background(names))
        elif request.background:
            names = list(add_background(names))
        is_list = found[name].has_lists if name in found else shapes.get(name, ()) != ()
        learned[name] = _build_label(feature, names, is_list=is_list)
        classes[name] = ClassIds(tuple(names), is_list=is_list)
    if request.background and not [name for name in learned if name not in named]:
        raise inapplicable(
            "background", "to this data", expected="a label whose classes are learned", found="no such label"
        )
    if request.class_names is not None and not named:
        raise inapplicable("label_map", "to this data", expected="a label: --label COLUMN", found="no label")
    if not classes and not request.drop and request.keep is None:
        return source, learned, None
    keep = None if request.keep is None else tuple([name for name in request.keep if name in features])
    return source, learned, ColumnConversions(classes, frozenset(request.drop), keep)


def _choose_named(
    request: ColumnRequest, unknown: Sequence[str], features: Mapping[str, Feature]
) -> dict[str, tuple[str, ...]]:
    """The label that a label map is for."""
    if request.class_names is None:
        return {}
    names = [request.label] if request.label in unknown else list(unknown)
    if len(names) != 1:
        found = "no label" if not names else f"{len(names)} labels"
        raise inapplicable("label_map", "to this data", expected="one label: --label COLUMN", found=found)
    return {str(names[0]): request.class_names}


def _is_multi_hot(collector: ClassCollector, seen: Feature | None) -> bool:
    """Whether a column of vectors is multi-hot already: each has one 0 or 1 per class."""
    if not collector.has_lists or seen is None or seen.value_kind != "int" or not collector.names <= {"0", "1"}:
        return False
    return len(seen.shape) == 1 and (seen.shape[0] or 0) > 1


def _build_label(feature: Label | MultiLabel, names: Sequence[str], *, is_list: bool) -> Feature:
    if isinstance(feature, MultiLabel) or (is_list and feature.shape == ()):
        return MultiLabel(names, **_common(feature))
    return Label(names, shape=feature.shape, **_common(feature))


def _common(feature: Feature) -> dict[str, Any]:
    return {name: value for name, value in feature.declared().items() if name in ("key", "optional", "default")}


def declare_layout(layout: Layout, source: Source, facts: SourceFacts, request: ColumnRequest) -> DeclaredColumns:
    """Some of the columns of a layout, and some with declared types."""
    columns = list(layout.schema)
    _check_names(request, columns, of=f"the layout {layout.name!r}")
    dropped = [name for name in columns if not request.is_kept(name)]
    declared = {}
    for name, feature in (request.columns or {}).items():
        if feature.is_label:
            continue  # the layout has its own classes, or those that were declared
        key = layout.schema[name].key or name
        declared[name] = type(feature)(**{"key": key, **feature.declared()})
    if dropped or declared:
        if len(dropped) == len(columns):
            raise invalid("drop", dropped, "at least one column that is written", f"keep={columns[:1]}", found="none")
        layout = SelectedLayout(layout, frozenset(dropped), declared)
        unused = tuple([_unused_column(name, request) for name in dropped])
        facts = replace(facts, unused=(*facts.unused, *unused))
    return DeclaredColumns(source=source, facts=facts, layout=layout, select=None)


def choose_class_names(request: ColumnRequest, layout: str, facts: SourceFacts) -> tuple[str, ...] | None:
    """The class names that override those of a layout's source; None if nothing does."""
    label = request.columns.get("label") if request.columns else None
    named = None if label is None else label.class_names
    wanted = request.class_names or named
    if layout != "classification":
        for option, value in (("background", request.background), ("label_map", request.class_names)):
            if value:
                raise inapplicable(
                    option, "to this data", expected="a source with labels", found=f"the layout {layout!r}"
                )
        return None
    if request.label not in (None, "label"):
        raise _unknown_column_error("label", str(request.label), ["label"], of="the layout 'classification'")
    if (request.background or request.class_names) and facts.extra.get("labels") is False:
        option = "background" if request.background else "label_map"
        raise inapplicable(option, "to this data", expected="images with labels", found="images without labels")
    return wanted


def _check_names(request: ColumnRequest, known: Collection[str], *, of: str = "the data") -> None:
    """Refuse names of columns that do not exist. With a schema, those that a function returns are not known yet."""
    if request.function is not None and request.outputs is None:
        return
    label = () if request.label is None else (request.label,)
    given = {"label": label, "columns": request.columns or (), "drop": request.drop, "keep": request.keep or ()}
    for option, names in given.items() if not request.is_partial else ():
        for name in names:
            if name not in known and not (request.may_have_more and closest_match(name, known) is None):
                raise _unknown_column_error(option, name, known, of=of)


def _unknown_column_error(option: str, name: str, known: Collection[str], *, of: str) -> RekordError:
    near = closest_match(name, known)
    some = ", ".join([f"`{one}`" for one in list(known)[:8]]) + (", …" if len(known) > 8 else "")
    instead = {"label": repr(near), "columns": f"{{{near!r}: …}}"}.get(option, f"[{near!r}]")
    return error(
        "U605",
        f"`{option}` names {preview(name)}, which is not a column of {of}",
        location=Location(feature=name[:60]),
        expected=f"one of {some}" if some else "a column",
        found=preview(name),
        do=f"{option}={instead}" if near else "use the name of a column",
    )


def _check_covered(request: ColumnRequest, known: Sequence[str]) -> None:
    """Refuse a schema that lacks columns of the data: nothing is left out silently."""
    assert request.schema is not None
    if request.function is not None or request.is_partial:
        return
    lacking = [name for name in known if name not in request.schema and request.is_kept(name)]
    if not lacking:
        return
    shown = ", ".join([f"`{name}`" for name in lacking[:5]]) + (", …" if len(lacking) > 5 else "")
    near = next((one for one in request.schema if one not in known and closest_match(one, lacking)), None)
    raise error(
        "S145",
        f"schema lacks {len(lacking):,} of {len(known):,} columns of the data: {shown}"[:160],
        location=Location(feature=lacking[0]),
        expected="all columns in schema=, or some of them in columns=, and the rest inferred",
        found=f"a schema of {len(request.schema):,} columns",
        likely=f"`{near}` of the schema is `{closest_match(near, lacking)}` in the data" if near else None,
        do=f"drop={lacking[:20]!r}, or columns= instead of schema= to infer the rest",
    )


def _unused_column(name: str, request: ColumnRequest) -> UnusedInput:
    return UnusedInput("column", name, "dropped" if name in request.drop else "not kept")
