"""CSV: one line a record, for columns that fit into one field."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import csv

from rekord.codec.arrow import column_to_arrow
from rekord.codec.columns import Column
from rekord.schema import Boxes, Bytes, Feature, Image, Label, Mask, Sparse, Tensor
from rekord.verbs.exports.gzipped import Gzipped
from rekord.verbs.exports.place import Output
from rekord.verbs.exports.plain import check_finite, check_names, named, plain_values
from rekord.verbs.exports.reading import Options, Records, refuse_columns

_HOLDS = "numbers, texts, labels, and lists of them with one dimension"


def check_csv(records: Records, options: Options) -> None:
    """Refuse what does not fit into a field."""
    check_names(records.features, options.labels)
    steps = records.split.schema.steps
    wrong = {
        name: "a column of steps" if name in steps else type(feature).__name__
        for name, feature in records.features.items()
        if name in steps or not _fits(feature)
    }
    refuse_columns("CSV", wrong, holds=_HOLDS)


def write_csv(
    records: Records, output: Output, options: Options, *, gzipped: bool = False, delimiter: str = ","
) -> int:
    """All records as lines of CSV below a line of names; gives their number.

    Texts are always quoted, and what is missing never is: an empty text is `""`, a missing one nothing at all.
    """
    features = records.features
    total = 0
    written = csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style="needed")
    with Gzipped(output, gzipped) as sink:
        sink.write((delimiter.join(_quoted(name, delimiter) for name in features) + "\n").encode())
        for batch, first, rows in records.batches():
            lists = {name: column for name, column in batch.items() if features[name].shape}
            check_finite(records, lists, first, rows, format="a list in CSV")
            arrays = []
            for name, column in batch.items():
                label = features[name]
                wanted = options.labels == "names" and isinstance(label, Label) and label.names
                values: Any = None
                if wanted or name in lists:
                    values = plain_values(column, features[name])[:rows]
                    if wanted:
                        assert isinstance(label, Label)
                        values = named(records, name, label, first)(values)
                arrays.append(_texts(values) if values is not None else _array(column)[:rows])
            buffer = pa.BufferOutputStream()
            table = pa.RecordBatch.from_arrays(arrays, list(batch))
            with csv.CSVWriter(buffer, table.schema, write_options=written) as writer:
                writer.write_batch(table)
            sink.write(buffer.getvalue())
            total += rows
            options.on_records(rows)
    return total


def _fits(feature: Feature) -> bool:
    if isinstance(feature, (Bytes, Image, Mask, Sparse, Boxes)) or len(feature.shape) > 1:
        return False
    return not isinstance(feature, Tensor) or (
        not feature.shape and getattr(feature.dtype, "kind", "") != "c"
    )


def _array(column: Column) -> Any:
    """Single numbers or texts of all rows."""
    array = column_to_arrow(column)
    return array.cast(pa.float32()) if array.type == pa.float16() else array


def _texts(values: list[Any]) -> Any:
    """Names as they are, and lists as JSON has them."""
    texts = [
        value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
        for value in values
    ]
    return pa.array(texts, pa.large_string())


def _quoted(name: str, delimiter: str) -> str:
    plain = name.strip() == name and not any(mark in name for mark in ('"', "\n", "\r", delimiter))
    return name if plain else '"' + name.replace('"', '""') + '"'
