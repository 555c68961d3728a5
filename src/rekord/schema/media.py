"""Audio and video: encoded files, or the PCM samples of audio."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rekord.arguments import check_keywords
from rekord.schema.base import (
    Changes,
    Feature,
    Inexpressible,
    InvalidDefault,
    Shape,
    Storage,
    json_number,
    json_octets,
    map_nested,
    validate_bytes,
    validate_element,
)

AUDIO_FORMATS = ("wav", "flac", "ogg", "mp3")
PCM_DTYPES: dict[str, np.dtype[Any]] = {"pcm16": np.dtype("<i2"), "pcm_f32": np.dtype("<f4")}
VIDEO_FORMATS = ("mp4", "mov", "mkv", "webm", "avi")
MAX_RATE = 1_000_000  # samples per second; ultrasound is recorded with some 500,000
MAX_CHANNELS = 255


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class _Media(Feature):
    """An encoded file, stored as one byte string."""

    format: str | None = None

    storage: ClassVar[Storage] = "blob"
    is_media = True

    @property
    def shape(self) -> Shape:
        return ()

    @property
    def dtype(self) -> Any:
        return None

    def _validate_format(self, choices: tuple[str, ...]) -> None:
        if self.format is not None:
            self._set("format", self.format.lower() if isinstance(self.format, str) else self.format)
            self._check_choice("format", self.format, choices, do=f'format="{choices[0]}", or format=None for any')

    def _conform_default(self, value: object) -> Any:
        encoded = validate_bytes(value)
        if not encoded:
            raise InvalidDefault(f"the bytes of an encoded {type(self).__name__.lower()} file", value)
        return encoded

    _json_value = staticmethod(json_octets)

    def changes_since(self, before: Feature) -> Changes:
        for name in ("format", "rate", "channels"):
            old, new = getattr(before, name, None), getattr(self, name, None)
            if old != new:
                yield new is None, f"{name} {old!r} became {new!r}"


@check_keywords
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Audio(_Media):
    """Audio: an encoded file (wav, flac, ogg, mp3), or PCM samples.

    `rate` (samples per second) and `channels` are required of every value if they are declared. `format="pcm16"` and
    `"pcm_f32"` store int16 or float32 samples instead of files, and need the `rate`; a value has the shape
    (samples,), or (samples, channels) with `channels=2` or more. `decode=True` gives float32 samples from -1 to 1 in
    the same shapes, at the rate of the file; several channels are averaged unless they are declared.
    """

    rate: int | None = None
    channels: int | None = None

    def _validate_fields(self) -> None:
        self._validate_format((*AUDIO_FORMATS, *PCM_DTYPES))
        if self.rate is not None:
            self._set("rate", self._validate_integer_field("rate", self.rate, 1, MAX_RATE))
        if self.channels is not None:
            self._set("channels", self._validate_integer_field("channels", self.channels, 1, MAX_CHANNELS))
        if self.is_pcm and self.rate is None:
            raise self._refuse(
                "S151",
                "stores PCM samples without their rate",
                expected="rate= in samples per second: PCM samples do not contain it",
                found=f'format="{self.format}"',
                do=f'Audio(format="{self.format}", rate=16_000)',
            )

    @property
    def is_pcm(self) -> bool:
        """Whether samples are stored, and not encoded files."""
        return self.format in PCM_DTYPES

    @property
    def decoded_shape(self) -> Shape:
        """The shape of the samples of one value."""
        return (None,) if self.channels in (None, 1) else (None, self.channels)

    @property
    def shape(self) -> Shape:
        return self.decoded_shape if self.is_pcm else ()

    @property
    def dtype(self) -> Any:
        return PCM_DTYPES.get(self.format or "")

    def _conform_default(self, value: object) -> Any:
        return Feature._conform_default(self, value) if self.is_pcm else _Media._conform_default(self, value)

    def _conform_element(self, value: object) -> Any:
        return validate_element(value, self.dtype)

    def stored_default(self) -> list[tuple[Any, ...]]:
        return [(np.array(self.default, self.dtype).tobytes() if self.is_pcm else self.default,)]

    @classmethod
    def default_from_json(cls, value: Any, members: Mapping[str, Any]) -> Any:
        if members.get("format") not in PCM_DTYPES:
            return json_octets(value)
        return map_nested(value, 1 if members.get("channels") in (None, 1) else 2, json_number)

    def tfds_feature(self) -> tuple[str, dict[str, Any]]:
        if self.optional:
            raise Inexpressible("a required column: this TFDS feature cannot be missing", f"{self!r}"[:60])
        rate = {} if self.rate is None else {"sampleRate": str(self.rate)}
        if self.is_pcm:
            return "audio", {"shape": self.shape, "dtype": self.dtype.name, "encoding": "bytes", **rate}
        file_format = {} if self.format is None else {"fileFormat": self.format}
        return "audio", {"shape": self.decoded_shape, "dtype": "int32", "lazyDecode": True, **file_format, **rate}


@check_keywords
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Video(_Media):
    """An encoded video file (mp4, mov, mkv, webm, avi), stored unchanged.

    `decode=True` gives its frames as uint8 of shape (frames, height, width, 3). Frames that are stored as images are
    a sequence of `rk.Image`: see `rk.sources.video_folder`.
    """

    def _validate_fields(self) -> None:
        self._validate_format(VIDEO_FORMATS)

    def tfds_feature(self) -> tuple[str, dict[str, Any]]:
        raise Inexpressible("frames stored as images, as TFDS does: a Video is one encoded file", f"{self!r}"[:60])
