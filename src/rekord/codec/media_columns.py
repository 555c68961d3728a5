"""Columns of audio and video decoded to samples and frames, for `decode=True`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rekord.codec.audio import decode_audio, to_float
from rekord.codec.columns import Array, Column, Offsets, Ragged, Strings
from rekord.codec.images.decode import decode_media_column, stack_pixels
from rekord.codec.images.jpeg import Size
from rekord.codec.values import InvalidValue
from rekord.codec.video import decode_video
from rekord.schema.media import Audio, Video


@decode_media_column.register(Audio)
def _decode_audio_column(
    feature: Audio, name: str, column: Column, resize: Size | None, one_dtype: bool = False
) -> Column:
    if isinstance(column, Ragged) and isinstance(column.values, np.ndarray):
        return Ragged(to_float(column.values), column.offsets, valid=column.valid, row_shape=column.row_shape)
    shape = () if feature.channels in (None, 1) else (feature.channels,)

    def concatenate(parts: list[Array]) -> Array:
        return np.concatenate(parts) if parts else np.zeros((0, *shape), np.float32)

    return _decode_rows(name, column, lambda data: decode_audio(data, feature.channels)[0], concatenate)


@decode_media_column.register(Video)
def _decode_video_column(
    feature: Video, name: str, column: Column, resize: Size | None, one_dtype: bool = False
) -> Column:
    """Frames as images of steps are: one array, or an array of arrays if the sizes of rows differ."""
    return _decode_rows(name, column, partial(decode_video, resize=resize), partial(stack_pixels, resize=resize))


def _decode_rows(
    name: str, column: Column, decode: Callable[[bytes], Array], concatenate: Callable[[list[Array]], Any]
) -> Column:
    """Each value decoded to an array of varying length; missing rows stay missing."""
    if isinstance(column, Strings):
        values, offsets = _decode_values(name, column, None, decode, concatenate)
        return Ragged(values, offsets, valid=column.valid)
    if isinstance(column, Ragged) and isinstance(column.values, Strings):
        values, offsets = _decode_values(name, column.values, column.offsets, decode, concatenate)
        return Ragged(Ragged(values, offsets), column.offsets, valid=column.valid)
    return column


def _decode_values(
    name: str,
    column: Strings,
    steps: Offsets | None,
    decode: Callable[[bytes], Array],
    concatenate: Callable[[list[Array]], Any],
) -> tuple[Any, Offsets]:
    """The arrays of all values, concatenated, and where each begins. `steps` are the offsets of the rows."""
    ends = [0]
    parts: list[Array] = []
    for at in range(len(column)):
        data = column[at]
        if data is not None:
            try:
                parts.append(decode(data))
            except InvalidValue as refused:
                row = at if steps is None else int(np.searchsorted(steps, at, side="right")) - 1
                step = None if steps is None else at - int(steps[row])
                raise refused.to_error(name, row=row, step=step) from refused.__cause__
        ends.append(ends[-1] + (0 if data is None else len(parts[-1])))
    return concatenate(parts), np.array(ends, np.int64)
