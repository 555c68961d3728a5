"""JSON lines: one object a record."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from rekord.schema import Bytes, Image, Label, Mask, Tensor
from rekord.verbs.exports.gzipped import Gzipped
from rekord.verbs.exports.place import Output
from rekord.verbs.exports.plain import check_finite, check_names, named, plain_values
from rekord.verbs.exports.reading import Options, Records, refuse_columns

_ESCAPED = re.compile(r'[\\"\x00-\x1f]')


def check_jsonl(records: Records, options: Options) -> None:
    """Refuse what JSON has no form for."""
    check_names(records.features, options.labels)
    complex_ones = {
        name: repr(feature)[:40]
        for name, feature in records.features.items()
        if isinstance(feature, Tensor) and getattr(feature.dtype, "kind", "") == "c"
    }
    refuse_columns("JSON", complex_ones, holds="numbers, texts, bytes and lists of them")


def write_jsonl(records: Records, output: Output, options: Options, *, gzipped: bool = False) -> int:
    """All records as lines of JSON; gives their number."""
    features = records.features
    row_of = _row_type(tuple(features))
    encoder = msgspec.json.Encoder()
    total = 0
    with Gzipped(output, gzipped) as sink:
        for batch, first, rows in records.batches():
            check_finite(records, batch, first, rows, format="JSON")
            columns = []
            for name, feature in features.items():
                values = plain_values(batch[name], feature)[:rows]
                if options.labels == "names" and isinstance(feature, Label) and feature.names:
                    values = named(records, name, feature, first)(values)
                octets = isinstance(feature, (Bytes, Image, Mask))
                columns.append(_with_octets(values) if octets else values)
            sink.write(encoder.encode_lines(list(map(row_of, *columns))))
            total += rows
            options.on_records(rows)
    return total


def _row_type(names: tuple[str, ...]) -> Callable[..., Any]:
    """What makes an object of the values of a record. What an optional column lacks is left out, as in the record."""
    if any(_ESCAPED.search(name) for name in names):
        # These names msgspec refuses to write as they stand.
        return lambda *values: {n: value for n, value in zip(names, values, strict=True) if value is not None}
    fields = [(f"column_{i}", Any, None) for i in range(len(names))]
    keys = {field[0]: name for field, name in zip(fields, names, strict=True)}
    return msgspec.defstruct("Line", fields, rename=keys, omit_defaults=True, gc=False)


class _Octets(msgspec.Struct, gc=False):
    """Bytes, which msgspec writes in base64."""

    base64: bytes


def _with_octets(values: list[Any]) -> list[Any]:
    return [
        _Octets(value) if isinstance(value, bytes) else value if value is None else _with_octets(value)
        for value in values
    ]
