"""The one pass of health: every record comes out once, with the values that `rk.decode` gives."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rekord as rk
from rekord.health import scan
from rekord.health.finding import Finding, Report
from rekord.health.key_columns import KeyColumn, KeyedBatch
from rekord.testing import (
    bytes_list,
    entry,
    example,
    feature,
    feature_list,
    features,
    float_list,
    frame_offsets,
    frames,
    int64_list,
    sequence_example,
)

KEYS = st.sampled_from(["a", "b", "image/encoded", "ä", "a_long_key_that_needs_more_than_one_word_of_a_header"])
INTS = (
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(int64_list).map(lambda body: feature(("int64", body)))
)
FLOATS = (
    st.lists(st.floats(width=32, allow_nan=False), max_size=4)
    .map(float_list)
    .map(lambda body: feature(("float", body)))
)
STRINGS = st.lists(st.binary(max_size=20), max_size=4).map(bytes_list).map(lambda body: feature(("bytes", body)))
FEATURES = INTS | FLOATS | STRINGS | st.just(feature())
EXAMPLES = st.dictionaries(KEYS, FEATURES, max_size=4)
LISTS = st.lists(INTS, max_size=3) | st.lists(STRINGS | st.just(feature()), max_size=3)
SEQUENCES = st.tuples(EXAMPLES, st.dictionaries(KEYS, LISTS.map(feature_list), min_size=1, max_size=3))


def message(entries: dict[str, bytes]) -> bytes:
    return features(entry(key, body) for key, body in entries.items())


def kind_of(value: Any) -> str | None:
    if value is None:
        return None
    return "bytes" if isinstance(value, list) else "int64" if value.dtype == np.int64 else "float"


def same(column: KeyColumn | None, row: int, wanted: Any) -> bool:
    if column is None or wanted is None:
        return wanted is None and (column is None or column.value(row) is None)
    found = column.value(row)
    return found is not None and kind_of(wanted) == column.kind and list(found) == list(wanted)


def scanned(payloads: list[bytes]) -> tuple[list[KeyedBatch], list[Finding], Report]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.tfrecord"
        path.write_bytes(frames(payloads))
        report = Report()
        items = list(scan.scan_file(str(path), report))
    batches = [item for item in items if isinstance(item, KeyedBatch)]
    return batches, [item for item in items if isinstance(item, Finding)], report


@pytest.mark.parametrize("batch_rows", [1, 3, 4096])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(examples=st.lists(EXAMPLES, max_size=12))
def test_every_example_comes_out_once_with_its_own_values(
    examples: list[dict[str, bytes]], batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "BATCH_ROWS", batch_rows)
    payloads = [example(message(each)) for each in examples]
    batches, findings, report = scanned(payloads)
    assert [finding.code for finding in findings if finding.code != "H703"] == []
    assert report.records == len(payloads)
    places = [(int(record), batch, row) for batch in batches for row, record in enumerate(batch.records)]
    assert sorted(record for record, *_ in places) == list(range(len(payloads)))
    offsets = frame_offsets(frames(payloads))
    for record, batch, row in places:
        assert batch.offsets[row] == offsets[record]
        assert batch.payload_bytes[row] == len(payloads[record])
        wanted = rk.decode(payloads[record])
        for key in wanted.keys() | batch.context.keys():
            assert same(batch.context.get(key), row, wanted.get(key)), (record, key)


@settings(max_examples=60)
@given(sequences=st.lists(SEQUENCES, min_size=1, max_size=8))
def test_every_sequence_comes_out_once_with_its_own_steps(sequences: list[Any]) -> None:
    payloads = [sequence_example(message(context), message(steps)) for context, steps in sequences]
    batches, findings, _ = scanned(payloads)
    assert [finding.code for finding in findings] == []
    seen = []
    for batch in batches:
        for row, record in enumerate(batch.records):
            seen.append(int(record))
            wanted = rk.decode(payloads[record], kind="sequence")
            for key in wanted.context.keys() | batch.context.keys():
                assert same(batch.context.get(key), row, wanted.context.get(key))
            for key in wanted.steps.keys() | batch.steps.keys():
                column = batch.steps.get(key)
                steps = wanted.steps.get(key)
                if column is None or steps is None:
                    assert steps is None
                    assert column is None or column.valid is not None
                    continue
                begin, end = column.offsets[row : row + 2]
                assert end - begin == len(steps)
                for i, step in enumerate(steps):
                    empty = step is None  # such a step is one without values
                    wanted_step = np.array([]) if empty else step
                    found = column.steps.value(int(begin) + i)
                    assert list(found) == list(wanted_step)
                    assert empty or column.steps.kind == kind_of(step)
    assert sorted(seen) == list(range(len(payloads)))
