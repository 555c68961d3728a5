"""The hashes that order and split rows: fixed for ever, scattered, and equal for equal values."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rekord.conversion.splits import encode_value, hash_rows, hash_text


def hashes(positions: Sequence[int], base: int = 7, copies: Sequence[int] | None = None) -> Any:
    bases = np.full(len(positions), base, np.uint64)
    given = None if copies is None else np.array(copies, np.int64)
    return hash_rows(bases, np.array(positions, np.int64), given)


def test_the_hashes_are_these_for_ever() -> None:
    """Another value here means that every shuffled dataset, and every split, becomes another one."""
    assert hash_text(0, "order", b"a/b.jpg") == GOLDEN_TEXT[0]
    assert hash_text(0, "split", b"a/b.jpg") == GOLDEN_TEXT[1]
    assert hash_text(-5, "order", b"a/b.jpg") == GOLDEN_TEXT[2]
    assert hash_text(0, "order", b"") == GOLDEN_TEXT[3]
    assert hashes([0, 1, 2**40]).tolist() == GOLDEN_ROWS
    assert hashes([0, 0], copies=[0, 1]).tolist() == GOLDEN_COPIES


GOLDEN_TEXT = [0x8DCD7A8319A4AA48, 0x1EBE2578A7FF381F, 0xB4E7C633AF29B8A2, 0x64885203E22A01CE]
GOLDEN_ROWS = [0x63CBE1E459320DD7, 0x44C3CD7F43C661C, 0x9DB20060659AB50C]
GOLDEN_COPIES = [0x63CBE1E459320DD7, 0x71EEEFB462EE8DFB]


def test_a_hash_depends_on_seed_purpose_path_position_and_copy() -> None:
    texts = {hash_text(seed, salt, path) for seed in (0, 1) for salt in ("order", "split") for path in (b"a", b"b")}
    assert len(texts) == 8
    assert len(set(hashes(range(10_000)).tolist())) == 10_000
    assert len(set(hashes([5] * 100, copies=range(100)).tolist())) == 100
    assert hashes([5])[0] == hashes([5], copies=[0])[0], "a row that was not copied is its own first copy"
    assert hashes([5], base=7)[0] != hashes([5], base=8)[0]


def test_hashes_of_neighbours_are_scattered_over_the_whole_range() -> None:
    counts = np.bincount((hashes(range(64_000)) >> np.uint64(58)).astype(np.int64), minlength=64)
    # 64 bins of a thousand each: five standard deviations.
    assert np.abs(counts - 1000).max() < 5 * 1000**0.5


@pytest.mark.parametrize(
    "equal",
    [
        [1, 1.0, True, np.int8(1), np.uint64(1), np.float32(1), np.bool_(True)],
        ["a", np.str_("a")],
        [b"a", np.bytes_(b"a")],
        [0, 0.0, -0.0, False],
        [0.5, np.float64(0.5)],
        [2**80, float(2**80)],
    ],
)
def test_equal_values_have_equal_bytes(equal: list[Any]) -> None:
    assert len({encode_value(value) for value in equal}) == 1


def test_different_values_have_different_bytes() -> None:
    values = [
        1,
        "1",
        b"1",
        1.5,
        "1.5",
        "",
        b"",
        "\ud800",
        float("inf"),
        datetime.date(2020, 1, 2),
        "i1",
        b"i1",
    ]
    assert len({encode_value(value) for value in values}) == len(values)
