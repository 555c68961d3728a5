"""Laws of drawing: quotas are exact, rounds are permutations, a place stands for itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from rekord import _core
from rekord.dataset.balanced import RepeatFactorSampler
from rekord.dataset.samplers import QuotaSampler, RankSteps, allocate_quotas, interleave_groups

QUOTAS = st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any)
SEEDS = st.integers(0, 2**63 - 1)


@dataclass(frozen=True)
class Plain:
    """Parts of some sizes; record r of part c is number 1000·c + r."""

    sizes: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.sizes)

    def size(self, part: int) -> int:
        return self.sizes[part]

    def records(self, part: int, round: int, numbers: np.ndarray, *, shuffled: bool, seed: int) -> np.ndarray:
        if shuffled:
            numbers = _core.permute(numbers, self.sizes[part], _core.order_key([seed, part, round]))
        return 1000 * part + numbers


@st.composite
def recipes(draw: st.DrawFn) -> QuotaSampler:
    quotas = draw(QUOTAS)
    sizes = tuple(draw(st.integers(1, 50)) for _ in quotas)
    return QuotaSampler(Plain(sizes), np.array(quotas, np.int64), draw(st.booleans()), draw(SEEDS), {})


def whole(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.int64)


@given(quotas=QUOTAS)
def test_an_interleave_gives_each_part_its_quota_in_order_and_evenly(quotas: list[int]) -> None:
    n = sum(quotas)
    bounds = np.concatenate([[0], np.cumsum(quotas)]).astype(np.int64)
    parts, numbers = interleave_groups(bounds, whole(n))
    for part, quota in enumerate(quotas):
        places = np.flatnonzero(parts == part)
        assert numbers[places].tolist() == list(range(quota))
        # Never far from its share: each halving is off by less than one.
        halvings = len(quotas).bit_length()
        so_far = np.cumsum(parts == part)
        assert np.abs(so_far - quota * (whole(n) + 1) / n).max() <= halvings


def test_an_interleave_of_very_many_records_is_exact() -> None:
    bounds = np.array([0, 3 << 40, 4 << 40], np.int64)
    positions = np.arange((4 << 40) - 8, 4 << 40, dtype=np.int64)
    parts, numbers = interleave_groups(bounds, positions)
    assert Counter(parts.tolist()) == {0: 6, 1: 2}
    assert numbers[parts == 0].tolist() == list(range((3 << 40) - 6, 3 << 40))
    assert numbers[parts == 1].tolist() == [(1 << 40) - 2, (1 << 40) - 1]


@given(sampler=recipes(), epoch=st.integers(0, 2**63 - 1))
@example(sampler=QuotaSampler(Plain((1,)), np.array([27]), True, 0, {}), epoch=2**63 - 1)
def test_an_epoch_has_the_quota_of_every_part(sampler: QuotaSampler, epoch: int) -> None:
    drawn = sampler.records(epoch, whole(sampler.size))
    counts = np.bincount(drawn // 1000, minlength=len(sampler.quotas))
    assert counts.tolist() == sampler.quotas.tolist()


@given(sampler=recipes(), epochs=st.integers(1, 6))
def test_no_record_of_a_part_comes_twice_more_than_another(sampler: QuotaSampler, epochs: int) -> None:
    seen: Counter[int] = Counter()
    for epoch in range(epochs):
        seen.update(sampler.records(epoch, whole(sampler.size)).tolist())
    assert isinstance(sampler.parts, Plain)
    for part, size in enumerate(sampler.parts.sizes):
        times = [seen[1000 * part + record] for record in range(size)]
        assert max(times) - min(times) <= 1


@given(sampler=recipes(), epoch=st.integers(0, 5), data=st.data())
def test_the_record_at_a_position_does_not_depend_on_what_is_asked_for_beside_it(
    sampler: QuotaSampler, epoch: int, data: st.DataObject
) -> None:
    asked = data.draw(st.lists(st.integers(0, sampler.size - 1), max_size=20))
    everything = sampler.records(epoch, whole(sampler.size))
    assert sampler.records(epoch, np.array(asked, np.int64)).tolist() == everything[asked].tolist()


@given(sampler=recipes(), world=st.integers(1, 5), batch_size=st.integers(1, 9), data=st.data())
def test_ranks_and_a_resume_elsewhere_deliver_the_same_epoch(
    sampler: QuotaSampler, world: int, batch_size: int, data: st.DataObject
) -> None:
    def delivered(ranks: int, consumed: int, most: int | None) -> list[int]:
        out: list[int] = []
        for rank in range(ranks):
            steps = RankSteps(sampler.size, batch_size, rank, ranks, consumed=consumed)
            for step in range(len(steps) if most is None else min(most, len(steps))):
                out += sampler.records(3, steps.positions(step)).tolist()
        return out

    first = RankSteps(sampler.size, batch_size, 0, world)
    done = data.draw(st.integers(0, len(first)))
    consumed = first.consumed_after(done - 1) if done else 0
    other_world = data.draw(st.integers(1, 5))
    both = delivered(world, 0, done) + delivered(other_world, consumed, None)
    assert sorted(both) == sorted(sampler.records(3, whole(sampler.size)).tolist())


@given(n=st.integers(0, 500), shares=st.lists(st.fractions(0, 10), min_size=1, max_size=9).filter(any))
def test_what_is_shared_out_is_all_and_nobody_is_one_off(n: int, shares: list[Fraction]) -> None:
    quotas = allocate_quotas(n, shares)
    assert quotas.sum() == n
    for share, quota in zip(shares, quotas.tolist(), strict=True):
        assert abs(quota - share * n / sum(shares)) < 1


@given(
    factors=st.lists(st.floats(1, 50), min_size=1, max_size=60),
    epoch=st.integers(0, 2**63 - 1),
    seed=SEEDS,
    shuffled=st.booleans(),
)
def test_repeats_are_the_factors_rounded_up_or_down(
    factors: list[float], epoch: int, seed: int, shuffled: bool
) -> None:
    ends = np.cumsum(np.array(factors))
    drawn = RepeatFactorSampler(None, ends, shuffled, seed, {}).records(epoch, whole(len(factors)))
    wanted = np.array(factors) * len(factors) / ends[-1]
    counts = np.bincount(drawn, minlength=len(factors))
    assert counts.sum() == len(factors)
    assert (np.abs(counts - wanted) < 1 + 1e-6).all()
