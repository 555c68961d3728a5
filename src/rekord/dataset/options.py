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

from rekord.arguments import integer, invalid, seed_number
from rekord.dataset.batches import get_default_threads
from rekord.dataset.order import Remainder, validate_ranks
from rekord.dataset.postprocess import Batch, MapFunction, check_callable, validate_resize
from rekord.errors import UsageError, closest_match, error

Shuffle: TypeAlias = 'bool | Literal["exact", "block"]'

Method = TypeVar("Method", bound=Callable[..., Any])


class BatchOptions(TypedDict, total=False):
    """Options shared by `batches` and every feed. `rank="auto"` is for `to_torch` and `to_jax`."""

    columns: Sequence[str] | None
    shuffle: bool | Literal["exact", "block"]
    seed: int
    epoch: int
    rank: int | Literal["auto"]
    world: int
    remainder: Literal["keep", "drop", "pad"]
    fill: Mapping[str, Any] | None
    ragged: Literal["ragged", "pad"]
    pad: Mapping[str, Any] | None
    decode: bool
    resize: tuple[int, int] | None
    map: Callable[[Batch], Any] | None
    prefetch: int
    threads: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedOptions:
    """The options with their defaults, checked.

    What `fill`, `ragged` and `pad` may be depends on the columns: `finisher` checks them.
    """

    columns: tuple[str, ...] | None = None
    shuffle: Shuffle = False
    seed: int = 0
    epoch: int = 0
    rank: int = 0
    world: int = 1
    remainder: Remainder = "keep"
    fill: Mapping[str, Any] | None = None
    ragged: Literal["ragged", "pad"] = "ragged"
    pad: Mapping[str, Any] | None = None
    decode: bool = False
    resize: tuple[int, int] | None = None
    map: MapFunction = None
    prefetch: int = 2
    threads: int = cast(int, None)  # as many as this process may use

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
            "remainder": remainder,
            "resize": validate_resize(self.decode, self.resize),
            "prefetch": integer("prefetch", self.prefetch, least=0),
            "threads": get_default_threads()
            if self.threads is None
            else integer("threads", self.threads, least=1),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)


class UnknownOption(UsageError, TypeError):
    """A TypeError as well: that is what Python raises for a keyword that a function does not take."""

    @property
    def family(self) -> str:
        """That of a UsageError."""
        return UsageError.__name__


def accepts_batch_options(method: Method, *, without: Sequence[str] = ()) -> Method:
    """A method that takes the batch options as `**options`, with all of them in its signature.

    Other keywords are refused by the method's name, with the option that was probably meant.
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
                raise _unknown(method.__name__, name, names - {"self", "split"})
        return method(*arguments, **options)

    checked.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    return cast(Method, checked)


def _unknown(method: str, name: str, names: set[str]) -> UnknownOption:
    meant = closest_match(name, sorted(names))
    return UnknownOption(
        "U605",
        f"`{method}` has no option `{name[:60]}`",
        expected="one of " + ", ".join(sorted(names)),
        found=f"{name[:60]}=…",
        do=f"{method}(…, {meant}=…)" if meant else f"help({method}) lists the options",
    )


def _check_shuffle(shuffle: object) -> None:
    if not isinstance(shuffle, (bool, str)) or shuffle not in (False, True, "exact", "block"):
        raise invalid("shuffle", shuffle, 'False, True, "exact" or "block"', "shuffle=True")


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
