"""Whether the model waited for its data, and what would make it wait less."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rekord.errors import RekordError
from rekord.storage.portability import usable_cores

if TYPE_CHECKING:
    from rekord.dataset.split import Split
    from rekord.training.result import EpochResult
    from rekord.training.task import Task

BOTTLENECK_SHARE = 0.2
"""A model that waits for more of its time than this is held up by its input."""

_MIN_LARGER_FACTOR = 4
"""Images of so many times the pixels that the model takes are worth writing again: most of the work is decoding."""
_MIN_UNUSED_SHARE = 0.5
_MIN_UNUSED_BYTES = 1000
_MAX_SMALL_BATCH = 16
_SAMPLED_RECORDS = 16
_SAMPLED_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class InputFacts:
    """What makes reading a split fast or slow; what could not be found out is 0, none or empty."""

    compression: str = "none"  # none, gzip or zlib
    remote: bool = False
    stored_size: tuple[int, int] | None = None  # height and width of a usual image
    wanted_size: tuple[int, int] | None = None  # that the model takes
    used_columns: tuple[str, ...] = ()
    used_bytes: int = 0  # of a usual record, in the columns that the model takes
    unused_bytes: int = 0  # of the same, in all others
    cores: int = 1


def collect_input_facts(split: Split, task: Task, image_size: tuple[int, int] | None) -> InputFacts:
    """Look at the first few records and at the head of one file; whatever goes wrong there goes without saying."""
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
    """What to change, what helps most first; nothing where the input is not the bottleneck."""
    if not is_bottleneck(_compute_waited_share(epochs)):
        return ()
    source = shlex.quote(path)
    told = []
    if known.remote:
        told.append(
            "the data comes over the network: copy it, .rekord included, to a disk of this machine, "
            "and train on the copy"
        )
    if known.stored_size is not None and known.wanted_size is not None:
        (high, wide), (height, width) = known.stored_size, known.wanted_size
        if high * wide >= _MIN_LARGER_FACTOR * height * width:
            told.append(
                f"the images have {high}×{wide} pixels, the model takes {height}×{width}: make them small once, "
                f"not in every epoch: rekord write {source} {_make_output_name(path, f'{height}x{width}')} "
                f"--resize {height}x{width}"
            )
    if known.compression != "none":
        told.append(
            f"the files are compressed with {known.compression}, and shuffled records are inflated in blocks: "
            f"rekord rewrite {source} {_make_output_name(path, 'plain')} --compression none"
        )
    if known.unused_bytes > _MIN_UNUSED_BYTES and known.unused_bytes > _MIN_UNUSED_SHARE * _sum_bytes(known):
        share = 100 * known.unused_bytes / _sum_bytes(known)
        told.append(
            f"{share:.0f} % of each record is in columns that are not used, and is read all the same: "
            f"rekord rewrite {source} {_make_output_name(path, 'used')} --keep "
            f"{shlex.quote(','.join(known.used_columns))}"
        )
    used_threads = _compute_default_threads(known.cores) if threads is None else threads
    if used_threads < known.cores:
        told.append(
            f"{used_threads} of {known.cores} cores read and decode: --threads {known.cores} lets all of them"
        )
    if batch_size < _MAX_SMALL_BATCH:
        told.append(
            f"each batch has a cost of its own, and has only {batch_size} records to share it: --batch-size 32"
        )
    return tuple(told) or (_describe_fast_model(epochs),)


def is_bottleneck(waited_share: float | None) -> bool:
    """Whether the input holds the model up."""
    return waited_share is not None and waited_share > BOTTLENECK_SHARE


def describe_bottleneck(waited_share: float | None) -> str:
    """One line that says which of the two is slower."""
    if waited_share is None:
        return "too few steps to say how long the model waited for data"
    slower = (
        "the input is the bottleneck" if is_bottleneck(waited_share) else "the model is the bottleneck, not the input"
    )
    return f"waited for data {format_percent(waited_share)} of the time: {slower}"


def format_percent(share: float | None) -> str:
    """`3 %`; what is little is not said to be nothing."""
    if share is None:
        return "–"
    return "<1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def _compute_waited_share(epochs: Sequence[EpochResult]) -> float:
    seconds = sum(epoch.seconds for epoch in epochs)
    return sum(epoch.waited_seconds for epoch in epochs) / seconds if seconds > 0 else 0.0


def _describe_fast_model(epochs: Sequence[EpochResult]) -> str:
    computed = sum(epoch.seconds - epoch.waited_seconds for epoch in epochs)
    records = sum(epoch.timed_records for epoch in epochs)
    rate = f": it computes {records / computed:,.0f} records a second" if computed > 0 else ""
    return f"nothing stands out in the data; a model this small is simply fast{rate}. A larger one waits less"


def _sum_bytes(known: InputFacts) -> int:
    return max(known.used_bytes + known.unused_bytes, 1)


def _make_output_name(path: str, suffix: str) -> str:
    """A name for what is made of a dataset, in the folder where a person works."""
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
    """The first records, all columns; few where records are large."""
    with suppress(RekordError):
        per_record = sum(stat.size_bytes for stat in split.view.stats()) // max(len(split.view.shards), 1)
        rows = min(max(_SAMPLED_BYTES // max(per_record, 1), 1), _SAMPLED_RECORDS)
        with iter(split.batches(rows, threads=1, prefetch=0)) as batches:
            return dict(next(batches, {}))
    return {}


def _estimate_column_bytes(column: Any) -> int:
    """About how many bytes a column's values take up: of what is made of parts, those of the parts."""
    if hasattr(column, "nbytes"):
        return int(column.nbytes)
    return sum(
        _estimate_column_bytes(getattr(column, part)) for part in ("indices", "values") if hasattr(column, part)
    )


def _find_median_size(column: Any) -> tuple[int, int] | None:
    """The height and width of the image in the middle, by pixels."""
    from rekord import _core
    from rekord.codec.columns import Strings

    if not isinstance(column, Strings):
        return None  # pixels as they are, which nothing decodes
    looked = [_core.inspect_image(data, False) for data in column.tolist() if isinstance(data, bytes)]
    sizes = [(one.height, one.width) for one in looked if one.fault == _core.ImageFault.NONE]
    return sorted(sizes, key=lambda size: size[0] * size[1])[len(sizes) // 2] if sizes else None
