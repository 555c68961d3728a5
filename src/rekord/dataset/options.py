"""The options that `batches` and every feed share: declared, given defaults and checked once.

An option is declared in `BatchOptions`, for type checkers and signatures, and in `CheckedOptions`, which holds its
default and its check. Methods take `**options: Unpack[BatchOptions]` (PEP 692) and pass them on as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar, cast

from rekord.arguments import integer, invalid, one_of, seed_number, unknown_keyword
from rekord.codec.columns import Batch
from rekord.dataset.samplers import Remainder
from rekord.errors import error

Shuffle: TypeAlias = 'bool | Literal["exact", "block"]'
MapFunction: TypeAlias = "Callable[[Batch], dict[str, Any]] | None"
ClassKey: TypeAlias = "int | str | bytes"
ClassShares: TypeAlias = (
    "Mapping[int, float] | Mapping[str, float] | Mapping[bytes, float] | Mapping[ClassKey, float]"
)
"""Numbers by class id, name or value. All are listed because the key of a Mapping is invariant."""

Method = TypeVar("Method", bound=Callable[..., Any])


class BatchOptions(TypedDict, total=False):
    """Options shared by `batches` and every feed. `rank="auto"` is for `to_torch` and `to_jax`."""

    columns: Sequence[str] | None
    shuffle: bool | Literal["exact", "block"]
    seed: int
    epoch: int
    rank: int | Literal["auto"]
    world: int
    nodes: int
    remainder: Literal["keep", "drop", "pad"]
    fill: Mapping[str, Any] | None
    ragged: Literal["ragged", "pad"]
    pad: Mapping[str, Any] | None
    decode: bool
    resize: tuple[int, int] | None
    map: Callable[[Batch], dict[str, Any]] | None
    prefetch: int
    threads: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedOptions:
    """The options with their defaults, checked.

    `fill`, `ragged` and `pad` depend on the columns: `build_postprocessor` checks them.
    """

    columns: tuple[str, ...] | None = None
    shuffle: Shuffle = False
    seed: int = 0
    epoch: int = 0
    rank: int = 0
    world: int = 1
    nodes: int = 1
    remainder: Remainder = "keep"
    fill: Mapping[str, Any] | None = None
    ragged: Literal["ragged", "pad"] = "ragged"
    pad: Mapping[str, Any] | None = None
    decode: bool = False
    resize: tuple[int, int] | None = None
    map: MapFunction = None
    prefetch: int = 2
    threads: int | None = None  # None: as many as pay off, see `read_batches`

    def __post_init__(self) -> None:
        rank, world, remainder = validate_ranks(self.rank, self.world, self.remainder)
        _check_shuffle(self.shuffle)
        check_callable(self.map)
        checked: dict[str, object] = {
            "columns": None if self.columns is None else validate_columns(self.columns),
            "seed": seed_number("seed", self.seed),
            "epoch": seed_number("epoch", self.epoch),
            "rank": rank,
            "world": world,
            "nodes": validate_nodes(self.nodes, world),
            "remainder": remainder,
            "resize": validate_resize(self.decode, self.resize),
            "prefetch": integer("prefetch", self.prefetch, least=0),
            "threads": None if self.threads is None else integer("threads", self.threads, least=1),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def has_postprocessing(self) -> bool:
        """Whether missing values are filled, rows padded, or a function applied."""
        return self.ragged != "ragged" or any(one is not None for one in (self.fill, self.pad, self.map))


def accepts_batch_options(method: Method, *, without: Sequence[str] = ()) -> Method:
    """A method that takes the batch options as `**options`, with all of them in its signature.

    Unknown keywords are refused with the name of the method and the closest option.
    """
    signature = inspect.signature(method)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    declared = BatchOptions.__annotations__
    shared = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=one.default,
            annotation=declared[one.name].__forward_arg__,
        )
        for one in fields(CheckedOptions)
        if one.name not in without
    ]
    names = {one.name for one in (*own, *shared)}

    @wraps(method)
    def checked(*arguments: Any, **options: Any) -> Any:
        for name in options:
            if name not in names:
                raise unknown_keyword(method.__name__, name, names - {"self", "split"})
        return method(*arguments, **options)

    checked.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    return cast(Method, checked)


def validate_ranks(rank: object, world: object, remainder: Remainder) -> tuple[int, int, Remainder]:
    """A rank below the world size, the world size, and what happens to the remainder."""
    size, number = integer("world", world, least=1, do="world=1"), integer("rank", rank, least=0, do="rank=0")
    if number >= size:
        raise invalid("rank", number, f"an integer from 0 to {size - 1}", "rank=0")
    return number, size, one_of("remainder", remainder, ("keep", "drop", "pad"), do='remainder="drop"')


def validate_nodes(nodes: object, world: int) -> int:
    """The number of machines, each with as many ranks."""
    number = integer("nodes", nodes, least=1, do="nodes=1")
    if world % number:
        raise invalid("nodes", number, f"a number that divides the world size, {world}", "nodes=1")
    return number


def _check_shuffle(shuffle: object) -> None:
    if not isinstance(shuffle, (bool, str)) or shuffle not in (False, True, "exact", "block"):
        raise invalid("shuffle", shuffle, 'False, True, "exact" or "block"', "shuffle=True")


def validate_resize(decode: object, resize: object) -> tuple[int, int] | None:
    """The size of decoded images, (height, width)."""
    if not isinstance(decode, bool):
        raise invalid("decode", decode, "True or False", "decode=True      (columns=[…] selects among the images)")
    if resize is None:
        return None
    if not decode:
        raise error(
            "U605",
            "`resize` needs decoded images",
            expected="decode=True",
            found="decode=False",
            do="decode=True",
        )
    parts = resize if isinstance(resize, (tuple, list)) else ()
    whole = [not isinstance(part, bool) and hasattr(part, "__index__") for part in parts]
    if len(parts) != 2 or not all(whole) or min(parts) < 1:
        raise invalid("resize", resize, "(height, width), two integers ≥ 1", "resize=(224, 224)")
    return int(parts[0].__index__()), int(parts[1].__index__())


def check_callable(function: object) -> None:
    """Refuse a `map` that is not callable."""
    if function is not None and not callable(function):
        raise invalid("map", function, "a function from batch to batch", "map=lambda batch: batch")


def validate_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Names of columns, each once."""
    single = isinstance(columns, (str, bytes)) or not hasattr(columns, "__iter__")
    given: list[Any] = [columns] if single else list(columns)
    if single or not all(isinstance(name, str) for name in given):
        wrong = next((name for name in given if not isinstance(name, str)), columns)
        raise error(
            "U605",
            f"`columns` cannot be {repr(columns)[:60]}",
            expected="a list of column names",
            found="one str" if isinstance(columns, str) else f"{repr(wrong)[:60]}",
            do=f"columns=[{columns[:60]!r}]" if isinstance(columns, str) else 'columns=["label"]',
        )
    return tuple(dict.fromkeys(given))
