"""Whether training waits for data, and what would reduce the waiting."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rekord.errors import RekordError
from rekord.storage.portability import usable_cores
from rekord.training.result import compute_waited_share

if TYPE_CHECKING:
    from rekord.dataset.split import Split
    from rekord.training.result import EpochResult
    from rekord.training.task import Task

BOTTLENECK_SHARE = 0.2
"""The input is the bottleneck if the model waits for more than this share of its time."""

_MIN_LARGER_FACTOR = 4
"""Images with this many times the pixels that the model uses are worth resizing once: decoding dominates."""
_MIN_UNUSED_SHARE = 0.5
_MIN_UNUSED_BYTES = 1000
_MAX_SMALL_BATCH = 16
_SAMPLED_RECORDS = 16
_SAMPLED_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class InputFacts:
    """What makes reading a split fast or slow; unknown facts are 0, none or empty."""

    compression: str = "none"  # none, gzip or zlib
    remote: bool = False
    stored_size: tuple[int, int] | None = None  # height and width of a typical image
    wanted_size: tuple[int, int] | None = None  # of the model's input
    used_columns: tuple[str, ...] = ()
    used_bytes: int = 0  # per record, in the columns that the model uses
    unused_bytes: int = 0  # per record, in all others
    cores: int = 1


def collect_input_facts(split: Split, task: Task, image_size: tuple[int, int] | None) -> InputFacts:
    """Inspect the first records and the start of one file; errors are ignored."""
    from rekord.storage.router import is_remote

    used = (*(each.column for each in task.inputs), task.target)
    sample = _read_sample(split)
    sizes = {name: _estimate_column_bytes(column) // max(len(column), 1) for name, column in sample.items()}
    images = [sample[each.column] for each in task.inputs if each.form == "image" and each.column in sample]
    return InputFacts(
        compression=_detect_path_compression(split.paths),
        remote=any(map(is_remote, split.paths)),
        stored_size=_find_median_size(images[0]) if images else None,
        wanted_size=image_size,
        used_columns=used,
        used_bytes=sum(size for name, size in sizes.items() if name in used),
        unused_bytes=sum(size for name, size in sizes.items() if name not in used),
        cores=usable_cores(),
    )


def advise(
    known: InputFacts, *, path: str, epochs: Sequence[EpochResult], batch_size: int, threads: int | None
) -> tuple[str, ...]:
    """What to change, most effective first; empty if the input is not the bottleneck."""
    if not is_bottleneck(compute_waited_share(epochs)):
        return ()
    source = shlex.quote(path)
    lines = []
    if known.remote:
        lines.append(
            "the data is read over the network: copy it, including .rekord, to a local disk and train on the copy"
        )
    if known.stored_size is not None and known.wanted_size is not None:
        (high, wide), (height, width) = known.stored_size, known.wanted_size
        if high * wide >= _MIN_LARGER_FACTOR * height * width:
            lines.append(
                f"the images have {high}×{wide} pixels, the model uses {height}×{width}: resize them once "
                f"instead of in every epoch: rekord write {source} {_make_output_name(path, f'{height}x{width}')} "
                f"--resize {height}x{width}"
            )
    if known.compression != "none":
        lines.append(
            f"the files are compressed with {known.compression}, and shuffling decompresses them in blocks: "
            f"rekord rewrite {source} {_make_output_name(path, 'plain')} --compression none"
        )
    if known.unused_bytes > _MIN_UNUSED_BYTES and known.unused_bytes > _MIN_UNUSED_SHARE * _sum_bytes(known):
        share = 100 * known.unused_bytes / _sum_bytes(known)
        lines.append(
            f"{share:.0f} % of each record is in unused columns, which are read as well: "
            f"rekord rewrite {source} {_make_output_name(path, 'used')} --keep "
            f"{shlex.quote(','.join(known.used_columns))}"
        )
    used_threads = _compute_default_threads(known.cores) if threads is None else threads
    if used_threads < known.cores:
        lines.append(
            f"{used_threads} of {known.cores} cores read and decode: --threads {known.cores} uses all of them"
        )
    if batch_size < _MAX_SMALL_BATCH:
        lines.append(f"batches of {batch_size} records have a high overhead per record: --batch-size 32")
    return tuple(lines) or (_describe_fast_model(epochs),)


def is_bottleneck(waited_share: float | None) -> bool:
    """Whether the model waits for its input."""
    return waited_share is not None and waited_share > BOTTLENECK_SHARE


def describe_bottleneck(waited_share: float | None) -> str:
    """Whether the input or the model is the bottleneck, in one line."""
    if waited_share is None:
        return "too few steps to measure the time spent waiting for data"
    slower = "the input is the bottleneck" if is_bottleneck(waited_share) else "the model is the bottleneck"
    return f"waited for data {format_percent(waited_share)} of the time: {slower}"


def format_percent(share: float | None) -> str:
    """`3 %`; a small share is `<1 %`, not 0."""
    if share is None:
        return "–"
    return "<1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def _describe_fast_model(epochs: Sequence[EpochResult]) -> str:
    computed = sum(epoch.seconds - epoch.waited_seconds for epoch in epochs)
    records = sum(epoch.timed_records for epoch in epochs)
    rate = f" ({records / computed:,.0f} records per second)" if computed > 0 else ""
    return f"nothing to improve in the data: a model this small is fast{rate}, and a larger one waits less"


def _sum_bytes(known: InputFacts) -> int:
    return max(known.used_bytes + known.unused_bytes, 1)


def _make_output_name(path: str, suffix: str) -> str:
    """The name of a derived dataset in the working directory."""
    return shlex.quote(f"{os.path.basename(os.path.normpath(path)) or 'dataset'}-{suffix}")


def _compute_default_threads(cores: int) -> int:
    from rekord.dataset.batches import get_default_threads

    return min(cores, get_default_threads())


def _detect_path_compression(paths: Sequence[str]) -> str:
    from rekord.dataset.shard_index import detect_file_compression

    with suppress(RekordError):
        return detect_file_compression(paths[0]) if paths else "none"
    return "none"


def _read_sample(split: Split) -> dict[str, Any]:
    """All columns of the first records; fewer records if they are large."""
    with suppress(RekordError):
        per_record = sum(stat.size_bytes for stat in split.view.stats()) // max(len(split.view.shards), 1)
        rows = min(max(_SAMPLED_BYTES // max(per_record, 1), 1), _SAMPLED_RECORDS)
        with iter(split.batches(rows, threads=1, prefetch=0)) as batches:
            return dict(next(batches, {}))
    return {}


def _estimate_column_bytes(column: Any) -> int:
    """The approximate size of a column's values."""
    if hasattr(column, "nbytes"):
        return int(column.nbytes)
    return sum(
        _estimate_column_bytes(getattr(column, part)) for part in ("indices", "values") if hasattr(column, part)
    )


def _find_median_size(column: Any) -> tuple[int, int] | None:
    """The height and width of the image with the median number of pixels."""
    from rekord import _core
    from rekord.codec.columns import Strings

    if not isinstance(column, Strings):
        return None  # raw pixels, which are not decoded
    found = [_core.inspect_image(data, False) for data in column.tolist() if isinstance(data, bytes)]
    sizes = [(one.height, one.width) for one in found if one.fault == _core.ImageFault.NONE]
    return sorted(sizes, key=lambda size: size[0] * size[1])[len(sizes) // 2] if sizes else None
