"""JSON lines: one object a record."""

from __future__ import annotations

import binascii
from typing import Any

import msgspec

from rekord.schema import Bytes, Image, Label, Mask, Tensor
from rekord.verbs.exports.gzipped import Gzipped
from rekord.verbs.exports.place import Output
from rekord.verbs.exports.plain import check_finite, check_names, named, plain_values
from rekord.verbs.exports.reading import Options, Records, refuse_columns


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
    labels = {
        name: one
        for name, one in features.items()
        if options.labels == "names" and isinstance(one, Label) and one.names
    }
    encoder = msgspec.json.Encoder()
    total = 0
    with Gzipped(output, gzipped) as sink:
        for batch, first, rows in records.batches():
            check_finite(records, batch, first, rows, format="JSON")
            names = list(batch)
            columns = []
            for name in names:
                values = plain_values(batch[name], features[name])[:rows]
                if name in labels:
                    values = named(records, name, labels[name], first)(values)
                octets = isinstance(features[name], (Bytes, Image, Mask))
                columns.append([_jsonable(value) for value in values] if octets else values)
            buffer = bytearray()
            holes = any(None in column for column in columns)
            for row in zip(*columns, strict=True):
                members = dict(zip(names, row, strict=True))
                if holes:
                    # What an optional column lacks in a record is left out, as it is in the record.
                    members = {name: value for name, value in members.items() if value is not None}
                buffer += encoder.encode(members)
                buffer += b"\n"
            sink.write(buffer)
            total += rows
            options.on_records(rows)
    return total


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": binascii.b2a_base64(value, newline=False).decode("ascii")}
    return [_jsonable(inner) for inner in value] if isinstance(value, list) else value
