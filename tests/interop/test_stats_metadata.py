"""The real tensorflow_metadata package reads our statistics, and finds the numbers that NumPy finds."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import statistics_pb2

import rekord as rk
from rekord.health.stats.tfx import to_binary
from rekord.testing import example_bytes, frames, sequence_bytes

RNG = np.random.default_rng(2)
INTS = RNG.integers(-50, 50, 6_000)
FLOATS = RNG.normal(3, 2, 6_000).astype(np.float32)
WORDS = [f"w{number}" for number in RNG.geometric(0.2, 6_000)]


def message(found):
    """Our text as the real message; our bytes say the same."""
    parsed = text_format.Parse(found.to_metadata(), statistics_pb2.DatasetFeatureStatisticsList())
    assert statistics_pb2.DatasetFeatureStatisticsList.FromString(to_binary(found)) == parsed
    return parsed


def by_path(dataset):
    return {tuple(feature.path.step): feature for feature in dataset.features}


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    path = tmp_path_factory.mktemp("stats") / "train.tfrecord"
    rows = []
    for i in range(6_000):
        row = {"i": [int(INTS[i])], "w": [WORDS[i].encode()], "b": [b"\xff" * (i % 5)]}
        rows.append(row | ({"f": [float(FLOATS[i])] * (1 + i % 3)} if i % 4 else {}))
    path.write_bytes(frames([example_bytes(row) for row in rows]))
    (dataset,) = message(rk.stats(path)).datasets
    assert (dataset.name, dataset.num_examples) == ("train", 6_000)
    return by_path(dataset)


def test_integers(features):
    feature = features["i",]
    assert feature.type == statistics_pb2.FeatureNameStatistics.INT
    numbers, common = feature.num_stats, feature.num_stats.common_stats
    assert (common.num_non_missing, common.num_missing, common.tot_num_values) == (6_000, 0, 6_000)
    assert (common.min_num_values, common.max_num_values, common.avg_num_values) == (1, 1, 1.0)
    assert (numbers.min, numbers.max, numbers.num_zeros) == (INTS.min(), INTS.max(), np.sum(INTS == 0))
    assert (numbers.mean, numbers.std_dev) == (pytest.approx(INTS.mean()), pytest.approx(INTS.std()))
    assert numbers.median == pytest.approx(np.median(INTS), abs=2)


def test_histograms(features):
    standard, quantiles = features["i",].num_stats.histograms
    assert standard.type == statistics_pb2.Histogram.STANDARD
    assert quantiles.type == statistics_pb2.Histogram.QUANTILES
    counts, edges = np.histogram(INTS, bins=10)
    assert [bucket.sample_count for bucket in standard.buckets] == counts.tolist()
    assert [bucket.low_value for bucket in standard.buckets] == pytest.approx(edges[:-1].tolist())
    assert [bucket.sample_count for bucket in quantiles.buckets] == [600] * 10
    assert (quantiles.buckets[0].low_value, quantiles.buckets[-1].high_value) == (INTS.min(), INTS.max())
    tenths = np.quantile(INTS, np.arange(1, 10) / 10)
    assert [bucket.high_value for bucket in quantiles.buckets[:-1]] == pytest.approx(tenths.tolist(), abs=2)


def test_floats_that_are_missing_in_some_records_and_several_in_others(features):
    present = [i for i in range(6_000) if i % 4]
    values = np.concatenate([np.full(1 + i % 3, FLOATS[i]) for i in present])
    numbers, common = features["f",].num_stats, features["f",].num_stats.common_stats
    assert features["f",].type == statistics_pb2.FeatureNameStatistics.FLOAT
    assert (common.num_non_missing, common.num_missing) == (4_500, 1_500)
    assert (common.min_num_values, common.max_num_values, common.tot_num_values) == (1, 3, len(values))
    assert common.avg_num_values == pytest.approx(len(values) / 4_500)
    assert (numbers.min, numbers.max) == (values.min(), values.max())
    assert numbers.mean == pytest.approx(values.mean(dtype=np.float64))
    assert numbers.std_dev == pytest.approx(values.std(dtype=np.float64))
    assert sum(bucket.sample_count for bucket in numbers.histograms[0].buckets) == len(values)


def test_strings(features):
    feature = features["w",]
    assert feature.type == statistics_pb2.FeatureNameStatistics.STRING
    strings = feature.string_stats
    counts = sorted((-WORDS.count(word), word) for word in set(WORDS))
    assert strings.unique == len(counts)
    assert [(-top.frequency, top.value) for top in strings.top_values] == counts[:20]
    assert [(-bucket.sample_count, bucket.label) for bucket in strings.rank_histogram.buckets] == counts
    assert [bucket.low_rank for bucket in strings.rank_histogram.buckets] == list(range(len(counts)))
    assert strings.avg_length == pytest.approx(np.mean([len(word) for word in WORDS]))


def test_bytes_that_are_no_text(features):
    octets = features["b",].bytes_stats
    assert (octets.unique, octets.avg_num_bytes) == (5, 2.0)
    assert (octets.min_num_bytes, octets.max_num_bytes, octets.max_num_bytes_int) == (0, 4, 4)


def test_what_is_not_finite(tmp_path):
    path = tmp_path / "x.tfrecord"
    values = [float("nan"), float("inf"), float("-inf"), 1.0]
    path.write_bytes(frames([example_bytes({"x": values, "n": [float("nan")]})]))
    features = by_path(message(rk.stats(path)).datasets[0])
    numbers = features["x",].num_stats
    assert (numbers.min, numbers.max, numbers.mean) == (float("-inf"), float("inf"), 1.0)
    assert numbers.histograms[0].num_nan == 1
    assert features["n",].num_stats.histograms[0].num_nan == 1


def test_steps_of_sequences_and_splits(tmp_path):
    records = [sequence_bytes({"id": [1]}, {"s": [[1], [2, 3]]})] * 2
    for split in ("train", "val"):
        (tmp_path / f"{split}.tfrecord").write_bytes(frames(records))
    found = message(rk.stats(tmp_path))
    assert [dataset.name for dataset in found.datasets] == ["train", "val"]
    features = by_path(found.datasets[0])
    assert set(features) == {("id",), ("##SEQUENCE##", "s")}
    common = features["##SEQUENCE##", "s"].num_stats.common_stats
    assert (common.num_non_missing, common.tot_num_values) == (2, 6)
    assert common.feature_list_length_histogram.buckets[0].low_value == 2


def test_hostile_names_and_values_come_through(tmp_path):
    path = tmp_path / "x.tfrecord"
    name = 'a"\\\n} datasets { name: "x'
    path.write_bytes(frames([example_bytes({name: ['ü"\\\n\x00'.encode()]})]))
    (dataset,) = message(rk.stats(path)).datasets
    assert list(by_path(dataset)) == [(name,)]
    assert dataset.features[0].string_stats.top_values[0].value == 'ü"\\\n\x00'


def test_a_large_negative_and_an_empty_dataset(tmp_path):
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frames([example_bytes({"x": [-(2**63)]})]))
    assert by_path(message(rk.stats(path)).datasets[0])["x",].num_stats.min == -(2.0**63)
    path.write_bytes(b"")
    assert message(rk.stats(path)).datasets[0].num_examples == 0
