"""Pictures in records: whole, of the format that is said, as large as the keys beside them say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rekord import _core
from rekord._core import Colour, PictureFault, PictureFormat
from rekord.codec.looking import (
    FORMATS,
    remarks_on,
    shown_format,
    times_pixel_limit,
    too_many_pixels,
    unsound,
)
from rekord.health.finding import Finding, Severity
from rekord.health.keyed import KeyedBatch
from rekord.health.rule import Repeated
from rekord.health.rules.cells import Cells
from rekord.health.rules.masks import MASK_KEY, as_finding, mask_findings, size_of_mask
from rekord.health.rules.once import Once, named
from rekord.schema import Image, Mask, Schema

Size: TypeAlias = "tuple[int, int, int] | None"
"""Width, height and EXIF's orientation; None where the picture does not say."""

_FORMAT_NAMES = {
    "jpg": "jpeg",
    "jpe": "jpeg",
    "jpeg": "jpeg",
    "png": "png",
    "gif": "gif",
    "bmp": "bmp",
    "webp": "webp",
}
_PILLOW_RAISES = 2
"""Beyond its limit Pillow warns of a decompression bomb; beyond this many times the limit it raises an error."""

_SWAPPING = 5
"""From this orientation of EXIF on a picture is shown with its width and height swapped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureKey:
    """A record key that holds pictures, and what is known of them."""

    key: str
    feature: str  # the column, or the key itself where there is no schema
    step: bool = False
    image: Image | None = None  # as declared
    mask: Mask | None = None
    is_mask: bool = False
    of: str | None = None  # the key of a mask's image
    alone: bool = True  # no other picture lies in the same folder of keys
    empty_is_usual: bool = False

    @property
    def declared(self) -> bool:
        """Whether a schema says that this is a picture."""
        return self.image is not None or self.mask is not None


def declared_pictures(schema: Schema) -> tuple[PictureKey, ...]:
    """The pictures of a schema, images before masks."""
    pictures: list[tuple[str, Image | Mask, bool]] = [
        (name, feature, name in schema.steps)
        for name, feature in schema.items()
        if isinstance(feature, (Image, Mask))
    ]
    images = {name: feature for name, feature, _ in pictures if isinstance(feature, Image)}
    out = []
    for name, feature, step in sorted(pictures, key=lambda one: isinstance(one[1], Mask)):
        key = feature.record_keys(name)[0]
        same = [other for other in images if _folder(images[other].record_keys(other)[0]) == _folder(key)]
        if isinstance(feature, Image):
            out.append(PictureKey(key=key, feature=name, step=step, image=feature, alone=len(same) <= 1))
            continue
        of = feature.of or next(iter(images), None)
        image_key = images[of].record_keys(of)[0] if of in images else None
        out.append(PictureKey(key=key, feature=name, step=step, mask=feature, is_mask=True, of=image_key))
    return tuple(out)


class PictureRule:
    """Every picture is whole and what is said of it; `keys_of` gives the pictures of a batch."""

    def __init__(self, keys_of: Callable[[KeyedBatch], Sequence[PictureKey]]) -> None:
        self._keys_of = keys_of
        self._repeated = Repeated()
        self._once = Once()

    def see(self, batch: KeyedBatch) -> Iterator[Finding]:
        """What is wrong with the pictures of these records."""
        sizes: dict[tuple[str | None, bool], dict[int, Size]] = {}
        for key in self._keys_of(batch):
            cells = Cells.of(batch, key.key, step=key.step)
            if cells is None or cells.column.kind != "bytes":
                continue
            beside = _Beside(batch, key)
            sizes[key.key, key.step] = seen = {}
            for row, cell, step, data in _each(cells):
                facts = _core.look(data, True)
                seen[cell] = _size(facts)
                for code, severity, said in self._about(key, data, facts, step, beside, row):
                    yield from self._told(batch, row, code, severity, key.feature, said)
                if key.is_mask and (key.of, key.step) in sizes:
                    image = sizes[key.of, key.step].get(cell)
                    apart = size_of_mask(_whose(key, step), key.of, image, seen[cell])
                    if apart is not None:
                        yield from self._told(batch, row, "H768", "error", key.feature, apart)

    def end_file(self, path: str) -> Iterator[Finding]:
        """What was only counted so far."""
        yield from self._repeated.end_file()
        yield from self._once.end_file()

    def end(self) -> Iterator[Finding]:
        """Nothing: every file has had its say."""
        yield from ()

    def _told(
        self, batch: KeyedBatch, row: int, code: str, severity: Severity, feature: str, said: dict[str, Any]
    ) -> Iterator[Finding]:
        if severity != "error":
            self._once.tell(batch, [row], code, severity, feature, lambda _: said)
        else:
            yield from self._repeated.tell(batch, [row], code, severity, feature, lambda _: said)

    def _about(
        self,
        key: PictureKey,
        data: bytes,
        facts: _core.PictureFacts,
        step: int | None,
        beside: _Beside,
        row: int,
    ) -> Iterator[tuple[str, Severity, dict[str, Any]]]:
        whose = _whose(key, step)
        what = "mask" if key.is_mask else "image"
        if facts.fault == PictureFault.EMPTY and key.empty_is_usual:
            return
        tiff = facts.format == PictureFormat.TIFF
        if facts.fault != PictureFault.NONE or (tiff and not key.is_mask):
            code, said = as_finding(unsound(facts, data, None, what), whose)
            yield code, "warning" if tiff and not key.declared else "error", said
            return
        yield from _too_large(facts, whose, declared=key.declared)
        yield from beside.format(row, facts, whose, key)
        yield from beside.size(row, facts, whose)
        if key.is_mask:
            yield from mask_findings(whose, data, facts, key.mask)
            return
        yield from beside.channels(row, facts, whose, key)
        for code, sentence in remarks_on(facts, None, "image"):
            yield code, "note", {"message": sentence.replace("the image", whose, 1)}


def _too_large(
    facts: _core.PictureFacts, whose: str, *, declared: bool
) -> Iterator[tuple[str, Severity, dict[str, Any]]]:
    """What decode=True would refuse for its number of pixels.

    Where no schema declares an image nobody is known to decode it, unless Pillow too would take it for an attack.
    """
    times = times_pixel_limit(facts)
    if times > 1:
        code, said = as_finding(too_many_pixels(facts), whose)
        yield code, "error" if declared or times > _PILLOW_RAISES else "warning", said


class _Beside:
    """The keys beside a picture that say what it is: `image/format` and `image/height` of `image/encoded`."""

    def __init__(self, batch: KeyedBatch, key: PictureKey) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, list[Any]] = {}
        for name in ("format", "height", "width", "channels"):
            found = None if key.step else _companion(batch, key, name)
            if found is not None:
                self._names[name] = found
                self._values[name] = _one_each(batch, found)

    def _of(self, name: str, row: int, kind: type) -> Any:
        value = self._values[name][row] if name in self._values else None
        return value if isinstance(value, kind) else None

    def format(
        self, row: int, facts: _core.PictureFacts, whose: str, key: PictureKey
    ) -> Iterator[tuple[str, Severity, dict[str, Any]]]:
        """The format that the schema declares, or that a key says."""
        found = FORMATS[facts.format]
        wanted = key.image.format if key.image is not None else None
        if wanted is not None and wanted != found:
            yield (
                "H764",
                "error",
                {
                    "message": f"{whose} is {shown_format(found)}, the schema says {shown_format(wanted)}",
                    "expected": f"the bytes of a {shown_format(wanted)} image",
                    "found": shown_format(found),
                    "do": f'declare format="{found}", or format=None for any',
                },
            )
            return
        said = self._of("format", row, bytes)
        if said is None:
            return
        wanted = _FORMAT_NAMES.get(said[:8].decode("latin-1").strip().lower().lstrip("."))
        if wanted is not None and wanted != found:
            yield (
                "H764",
                "warning",
                {
                    "message": f"{whose} is {shown_format(found)}, {named(self._names['format'])} says otherwise",
                    "expected": f"{shown_format(wanted)}, as {named(self._names['format'])} says",
                    "found": shown_format(found),
                    "likely": "a file whose name ends in another format than its bytes have",
                    "do": f"write {named(self._names['format'])} from the bytes of the picture, not from its name",
                },
            )

    def size(
        self, row: int, facts: _core.PictureFacts, whose: str
    ) -> Iterator[tuple[str, Severity, dict[str, Any]]]:
        """The size that the keys say."""
        width, height = self._of("width", row, int), self._of("height", row, int)
        if width in (None, facts.width) and height in (None, facts.height):
            return
        keys = " and ".join([named(self._names[name]) for name in ("width", "height") if name in self._names])
        likely = None
        if (width, height) == (facts.height, facts.width):
            likely = "width and height are swapped"
            if facts.orientation >= _SWAPPING:
                likely = "the picture is turned by EXIF, and the keys tell the size of the turned one"
        told = " × ".join(["?" if side is None else f"{side:,}" for side in (width, height)])
        yield (
            "H765",
            "error",
            {
                "message": f"{whose} has another size than {keys} say",
                "expected": f"{told} (width × height), as {keys} say",
                "found": f"{facts.width:,} × {facts.height:,}",
                "likely": likely,
                "do": "write the keys from the picture itself, after any resizing",
            },
        )

    def channels(
        self, row: int, facts: _core.PictureFacts, whose: str, key: PictureKey
    ) -> Iterator[tuple[str, Severity, dict[str, Any]]]:
        """How many channels the schema or a key says: a note, where readers that ask for three get three."""
        said = self._of("channels", row, int)
        source = named(self._names["channels"]) if said is not None else "the schema"
        if said is None and key.image is not None:
            said = key.image.channels
        if said in (None, facts.channels) or facts.colour in (Colour.CMYK, Colour.YCCK):
            return
        yield (
            "H738",
            "note" if said == 3 else "warning",
            {
                "message": f"{whose} has {_channels(facts.channels)}, {source} says {said}",
                "expected": _channels(said),
                "found": f"{_channels(facts.channels)} of {facts.bits} bits",
                "do": f"tf.io.decode_image(…, channels={said}) gives what is said"
                if said in (1, 3, 4)
                else "write the key from the picture itself",
            },
        )


def _each(cells: Cells) -> Iterator[tuple[int, int, int | None, bytes]]:
    """Every picture: its row in the batch, its cell, its step, and its bytes."""
    column = cells.column
    owners = column.owners.tolist()
    rows = owners
    if cells.lists is not None:
        rows = (np.searchsorted(cells.lists, column.owners, side="right") - 1).tolist()
    for place, (row, cell) in enumerate(zip(rows, owners, strict=True)):
        if cell >= 0:
            yield row, cell, cells.step(row, cell), column.values.bytes(place)


def _whose(key: PictureKey, step: int | None) -> str:
    stored = "" if key.key == key.feature else f" (stored as {named(key.key)})"
    return f"{'' if step is None else f'step {step:,} of '}{named(key.feature)}{stored}"


def _size(facts: _core.PictureFacts) -> Size:
    whole = facts.fault == PictureFault.NONE and facts.format != PictureFormat.NONE
    return (facts.width, facts.height, facts.orientation) if whole else None


def _folder(key: str) -> str:
    return key[: key.rfind("/") + 1]


def _companion(batch: KeyedBatch, key: PictureKey, name: str) -> str | None:
    """The key that says something of a picture: image/height or image_height of image; height beside it."""
    wanted = "bytes" if name == "format" else "int64"
    candidates = [f"{key.key}/{name}", f"{key.key}_{name}"]
    # A size in the folder of a mask is its image's, which the mask is compared with anyway.
    if key.alone and (not key.is_mask or key.key == MASK_KEY):
        candidates.append(f"{_folder(key.key)}{name}")
    for candidate in candidates:
        column = batch.context.get(candidate)
        if column is not None and column.kind == wanted:
            return candidate
    return None


def _one_each(batch: KeyedBatch, key: str) -> list[Any]:
    """The one value that each row has under a key; None where it has none, or several."""
    column = batch.context[key]
    if isinstance(column.values, _core.StringColumn):
        values: list[Any] = column.values.list_bytes(0, len(column.values))
    else:
        values = column.values.tolist()
    if column.offsets is not None:
        begins, counts = column.offsets.tolist(), column.counts.tolist()
        values = [values[begins[row]] if counts[row] == 1 else None for row in range(len(batch))]
    if column.valid is not None:
        values = [value if here else None for value, here in zip(values, column.valid.tolist(), strict=True)]
    return values


def _channels(count: int) -> str:
    return f"{count} channel" if count == 1 else f"{count} channels"
