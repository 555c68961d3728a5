"""Samplers: which record is delivered at each position of an epoch, as a pure function of seed and epoch.

Ranks and loader workers only partition the positions (`RankSteps`).
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.arguments import invalid

if TYPE_CHECKING:
    from rekord.dataset.shards import Shards

Ids: TypeAlias = npt.NDArray[np.int64]
Selection: TypeAlias = "range | Ids"
OrderKind: TypeAlias = Literal["sequential", "exact", "block"]
Remainder: TypeAlias = Literal["keep", "drop", "pad"]

WINDOW_BLOCKS = 16
"""A block-wise order permutes records within this many blocks."""

UINT64_RANGE = 1 << 64
_MAX_NUMBER = 1 << 62
_MAX_EXACT = 1 << 31
"""Below this the product of two numbers of records fits in an int64."""


@dataclass(frozen=True, slots=True)
class EpochOrder:
    """An order of `n` records. A block-wise one has blocks of `block` records; `lanes` is the first world size.

    With several `nodes`, each has a part of the blocks that is the same in every epoch: its lanes, which follow each
    other, read only these, so that a cache on each node has to hold no others.
    """

    kind: OrderKind
    n: int
    seed: int = 0
    block: int = 1
    window: int = WINDOW_BLOCKS
    lanes: int = 1
    nodes: int = 1

    def records(self, epoch: int, positions: Ids) -> Ids:
        """The record at each of these positions of an epoch."""
        if self.kind == "sequential" or not len(positions):
            return positions
        key = _core.order_key([self.seed, epoch])
        if self.kind == "exact":
            return _core.permute(positions, self.n, key)  # type: ignore[return-value]
        if self.nodes > 1:
            return self._records_of_nodes(epoch, positions)
        return _core.permute_blocks(  # type: ignore[return-value]
            positions, self.n, self.block, self.window, self.lanes, key
        )

    def _records_of_nodes(self, epoch: int, positions: Ids) -> Ids:
        nodes, number = self._locate_in_nodes(positions)
        records = np.empty(len(positions), np.int64)
        for node in np.unique(nodes).tolist():
            begin, end = int(self._node_bounds[node]), int(self._node_bounds[node + 1])
            key = _core.order_key([self.seed, epoch, node])
            here = nodes == node
            records[here] = begin + _core.permute_blocks(  # type: ignore[operator]
                number[here], end - begin, self.block, self.window, self._lanes_per_node, key
            )
        return records

    @property
    def _lanes_per_node(self) -> int:
        return self.lanes // self.nodes

    @property
    def _node_bounds(self) -> Ids:
        """The first record of each node, and the number of all: whole blocks, as equal as possible."""
        blocks = -(-self.n // self.block)
        firsts = np.arange(self.nodes + 1, dtype=np.int64) * blocks // self.nodes
        return np.minimum(firsts * self.block, self.n)

    def _locate_in_nodes(self, positions: Ids) -> tuple[Ids, Ids]:
        """The node of each position, and its number in the order of that node.

        Position p belongs to lane p mod lanes, as long as every node has records left. What some have more than the
        others comes at the end, node by node.
        """
        sizes, local = np.diff(self._node_bounds), self._lanes_per_node
        rounds = int(sizes.min()) // local
        turn, lane = np.divmod(positions, self.lanes)
        nodes, number = lane // local, turn * local + lane % local
        rest = positions - rounds * self.lanes
        is_rest = rest >= 0
        ends = np.cumsum(sizes - rounds * local)
        last = np.searchsorted(ends, rest[is_rest], side="right")
        nodes[is_rest] = last
        number[is_rest] = rounds * local + rest[is_rest] - (ends - (sizes - rounds * local))[last]
        return nodes, number

    def to_dict(self) -> dict[str, Any]:
        """The order as a state holds it, without the number of records."""
        if self.kind == "sequential":
            return {"kind": self.kind}
        order: dict[str, Any] = {"kind": self.kind, "seed": self.seed}
        if self.kind == "block":
            order |= {"block": self.block, "window": self.window, "lanes": self.lanes}
            order |= {"nodes": self.nodes} if self.nodes > 1 else {}
        return order

    def resume(self, saved: Mapping[str, Any]) -> EpochOrder:
        """The order to resume from a state: a block-wise one keeps its blocks and lanes, whatever the world size."""
        if self.kind != "block":
            return self
        block, window, lanes = saved.get("block"), saved.get("window"), saved.get("lanes")
        nodes = saved.get("nodes", 1)
        if not (_is_number(block) and _is_number(window) and _is_number(lanes) and _is_number(nodes)):
            return self  # which is then another order than the state's
        if lanes % nodes:
            return self
        return replace(self, block=block, window=window, lanes=lanes, nodes=nodes)


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < _MAX_NUMBER


@dataclass(frozen=True, slots=True)
class RankSteps:
    """The steps of one rank through `n` positions, starting at position `consumed`.

    Positions that do not fill a step are kept (a rank may then have a shorter batch than others, or none), dropped,
    or padded with positions from the start of the epoch.
    """

    n: int
    batch_size: int
    rank: int = 0
    world: int = 1
    remainder: Remainder = "keep"
    consumed: int = 0

    @property
    def step_positions(self) -> int:
        """Positions per step, over all ranks."""
        return self.batch_size * self.world

    def __len__(self) -> int:
        """Number of batches left for this rank."""
        left = max(self.n - self.consumed, 0)
        whole, rest = divmod(left, self.step_positions)
        if not rest or self.remainder == "drop":
            return whole
        return whole + 1 if self.remainder == "pad" or len(self.positions(whole)) else whole

    @property
    def padded(self) -> int:
        """Positions of the last step, over all ranks, that repeat the start of the epoch."""
        rest = max(self.n - self.consumed, 0) % self.step_positions
        return self.step_positions - rest if self.remainder == "pad" and rest else 0

    def consumed_after(self, step: int) -> int:
        """Positions of the epoch delivered after this step, over all ranks."""
        return min(self.consumed + (step + 1) * self.step_positions, self.n)

    def worker_steps(self, worker: int, workers: int) -> Iterator[int]:
        """The steps of one loader worker: whole ones, so that the order does not depend on the number of workers."""
        return iter(range(worker, len(self), workers))

    def positions(self, step: int) -> Ids:
        """The positions of this rank in a step."""
        begin = self.consumed + step * self.step_positions
        first = begin + (self.rank - begin) % self.world
        end = begin + self.step_positions
        if self.remainder == "pad":
            return np.arange(first, end, self.world, dtype=np.int64) % max(self.n, 1)
        return np.arange(first, min(end, self.n), self.world, dtype=np.int64)


def normalize_selection(ids: Ids) -> Selection:
    """These numbers, as a range if they are evenly spaced: equal views have equal selections."""
    if len(ids) < 2:
        return range(int(ids[0]), int(ids[0]) + 1) if len(ids) else range(0)
    step = int(ids[1]) - int(ids[0])
    if step and bool((np.diff(ids) == step).all()):
        return range(int(ids[0]), int(ids[-1]) + step, step)
    return ids


def slice_selection(within: Selection, which: slice) -> Selection:
    """A slice of a selection."""
    part = within[which]
    if not isinstance(part, range):
        return normalize_selection(part)
    if len(part) < 2:
        return range(part[0], part[0] + 1) if part else range(0)
    return part if part[-1] + part.step == part.stop else range(part[0], part[-1] + part.step, part.step)


def select_numbers(selection: Selection, places: Ids) -> Ids:
    """The numbers at some positions of a selection."""
    if isinstance(selection, range):
        return selection.start + places * selection.step
    return selection[places]


def expand_selection(selection: Selection) -> Ids:
    """Every number of a selection."""
    if isinstance(selection, range):
        return np.arange(selection.start, selection.stop, selection.step, dtype=np.int64)
    return selection


def concat_selections(selections: Sequence[Selection]) -> Selection:
    """Several selections, one after another."""
    return normalize_selection(np.concatenate([expand_selection(one) for one in selections]))


def digest_selection(selection: Selection) -> str:
    """A short digest that identifies a selection."""
    if isinstance(selection, range):
        content = f"{selection.start}:{selection.stop}:{selection.step}".encode()
    else:
        content = np.ascontiguousarray(selection, np.int64).tobytes()
    return hashlib.sha256(content).hexdigest()[:16]


class Sampler(ABC):
    """Which record is at each position of an epoch: what `Batches` follows."""

    is_file_order: ClassVar[bool] = False
    """Whether position p is record p of all, so that files can be read from start to end."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Positions per epoch."""

    @abstractmethod
    def records(self, epoch: int, positions: Ids) -> Ids:
        """The numbers of the records at these positions."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """What identifies this sampler in a state: small, and JSON."""

    def resume(self, saved: Mapping[str, Any]) -> Sampler:
        """The sampler to resume from a state with this `to_dict()`. Whether the two match is checked elsewhere."""
        return self


@dataclass(frozen=True)
class FileOrderSampler(Sampler):
    """All records of some shards in file order. Their number is looked up when it is needed."""

    shards: Shards
    is_file_order = True

    @property
    def size(self) -> int:
        return len(self.shards)

    def records(self, epoch: int, positions: Ids) -> Ids:
        return positions

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "sequential"}


@dataclass(frozen=True)
class FullSampler(Sampler):
    """Every record of some shards once per epoch, in an order computed from (seed, epoch)."""

    order: EpochOrder

    @property
    def size(self) -> int:
        return self.order.n

    def records(self, epoch: int, positions: Ids) -> Ids:
        return self.order.records(epoch, positions)

    def to_dict(self) -> dict[str, Any]:
        return self.order.to_dict()

    def resume(self, saved: Mapping[str, Any]) -> FullSampler:
        return replace(self, order=self.order.resume(saved))


@dataclass(frozen=True, eq=False)
class SubsetSampler(Sampler):
    """Some of the records, in an order of their own. `ids` are their numbers."""

    order: EpochOrder
    ids: Selection

    @property
    def size(self) -> int:
        return len(self.ids)

    def records(self, epoch: int, positions: Ids) -> Ids:
        return select_numbers(self.ids, self.order.records(epoch, positions))

    def to_dict(self) -> dict[str, Any]:
        return {**self.order.to_dict(), "selected": self._digest}

    def resume(self, saved: Mapping[str, Any]) -> SubsetSampler:
        return replace(self, order=self.order.resume(saved))

    @cached_property
    def _digest(self) -> str:
        return digest_selection(self.ids)


class Sampling(Protocol):
    """How the epochs of a balanced or mixed split are sampled from its records."""

    @property
    def description(self) -> str:
        """A short description."""

    @property
    def size(self) -> int:
        """Positions per epoch."""

    @property
    def achieved(self) -> Mapping[Any, float]:
        """The share of each class, or of each component, in an epoch."""

    def sampler(self, *, shuffled: bool, seed: int) -> Sampler:
        """Which record is at each position."""


class SamplingGroups(Protocol):
    """Groups to sample from. Each has an order of its own in every round through it."""

    def __len__(self) -> int: ...

    def size(self, part: int) -> int:
        """Number of records in a group."""

    def records(self, part: int, round: int, numbers: Ids, *, shuffled: bool, seed: int) -> Ids:
        """The records at these positions of one round through a group."""


@dataclass(frozen=True, eq=False)
class QuotaSampler(Sampler):
    """A sampler that takes a fixed number of records from each group per epoch, at computed positions.

    Each group has a sequence of its own that continues from epoch to epoch: its records in one order, then in
    another, and so on. A small group comes around several times in an epoch, each record as often as any other; a
    large one is covered over several epochs. All of it is computed from the position.
    """

    parts: SamplingGroups
    quotas: Ids
    shuffled: bool
    seed: int
    extra: Mapping[str, Any]

    @property
    def size(self) -> int:
        return int(self._bounds[-1])

    @cached_property
    def _bounds(self) -> Ids:
        return np.concatenate([[0], np.cumsum(self.quotas)]).astype(np.int64)

    def records(self, epoch: int, positions: Ids) -> Ids:
        out = np.empty(len(positions), np.int64)
        if not len(positions):
            return out
        parts, numbers = self._places(epoch, positions)
        grouped = np.argsort(parts, kind="stable")
        used, begins = np.unique(parts[grouped], return_index=True)
        for part, places in zip(used.tolist(), np.split(grouped, begins[1:]), strict=True):
            out[places] = self._of_part(part, epoch, numbers[places])
        return out

    def to_dict(self) -> dict[str, Any]:
        order = {"kind": "exact", "seed": self.seed} if self.shuffled else {"kind": "sequential"}
        quotas = hashlib.sha256(np.ascontiguousarray(self.quotas, np.int64).tobytes()).hexdigest()
        return {**order, **self.extra, "quotas": quotas[:16]}

    def _places(self, epoch: int, positions: Ids) -> tuple[Ids, Ids]:
        if not self.shuffled:
            return interleave_groups(self._bounds, positions)
        key = _core.order_key([self.seed, epoch])
        drawn: Ids = _core.permute(positions, self.size, key)  # type: ignore[assignment]
        # The last of equal bounds: groups without a quota have no positions.
        parts = np.searchsorted(self._bounds, drawn, side="right").astype(np.int64) - 1
        return parts, drawn - self._bounds[parts]

    def _of_part(self, part: int, epoch: int, numbers: Ids) -> Ids:
        size = self.parts.size(part)
        # Python's integers: an epoch number may be very large.
        round_before, begun = divmod(epoch * int(self.quotas[part]), size)
        rounds, inside = np.divmod(begun + numbers, size)
        out = np.empty(len(numbers), np.int64)
        for each in np.unique(rounds).tolist():
            here = rounds == each
            # A key is made of words of 64 bits.
            number = (round_before + each) % UINT64_RANGE
            out[here] = self.parts.records(part, number, inside[here], shuffled=self.shuffled, seed=self.seed)
        return out


def interleave_groups(bounds: Ids, positions: Ids) -> tuple[Ids, Ids]:
    """Groups spread evenly over an epoch: the group at each position, and its number within that group.

    The groups are halved again and again. Of n positions, `first` of which belong to the first half, position p is
    one of them where p · first / n crosses an integer; that integer is the number of positions before it. `bounds`
    are the cumulative quotas.
    """
    parts, numbers = np.zeros(len(positions), np.int64), np.zeros(len(positions), np.int64)
    places = np.arange(len(positions))
    if int(bounds[-1]) >= _MAX_EXACT:
        positions = positions.astype(object)
    waiting = [(0, len(bounds) - 1, places, positions)]
    while waiting:
        begin, end, places, inside = waiting.pop()
        if end - begin == 1:
            parts[places], numbers[places] = begin, inside.astype(np.int64)
            continue
        middle = (begin + end) // 2
        n, first = int(bounds[end] - bounds[begin]), int(bounds[middle] - bounds[begin])
        before = inside * first // n
        is_first = (inside + 1) * first // n > before
        for low, high, mine, number in (
            (begin, middle, is_first, before),
            (middle, end, ~is_first.astype(bool), inside - before),
        ):
            mine = mine.astype(bool)
            if mine.any():
                waiting.append((low, high, places[mine], number[mine]))
    return parts, numbers


def allocate_quotas(n: int, shares: Sequence[Fraction]) -> Ids:
    """Quotas for shares of n: integers, each less than 1 from its exact share, with the sum n."""
    total = sum(shares, Fraction(0))
    exact = [share * n / total for share in shares]
    quotas = [math.floor(one) for one in exact]
    # The rest goes to those that lost most by rounding down; of equals, to the first ones.
    losers = sorted(range(len(shares)), key=lambda place: quotas[place] - exact[place])
    for place in losers[: n - sum(quotas)]:
        quotas[place] += 1
    return np.array(quotas, np.int64)


def parse_share(name: str, value: object) -> Fraction:
    """A share as it was written: 0.7 is seven tenths, not the nearest float."""
    number = value.item() if isinstance(value, np.generic) else value
    usable = isinstance(number, (int, float, Fraction)) and not isinstance(number, bool)
    if not usable or not math.isfinite(number) or number < 0:  # type: ignore[arg-type, operator]
        raise invalid("share", value, "a number ≥ 0", f"{name}: 0.5")
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)  # type: ignore[arg-type]
