"""Masks in records: PNGs of class ids, as large as their images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rekord import _core
from rekord._core import Colour, PictureFormat
from rekord.codec.looking import FORMATS, Unsound, shown_format
from rekord.codec.masks import Ids, examined_mask
from rekord.codec.unfit import Unfit
from rekord.health.finding import Severity
from rekord.health.rules.once import named
from rekord.schema import Mask

MASK_KEY = "image/segmentation/class/encoded"
"""Where DeepLab's records keep the mask of `image/encoded`."""

_CODES = {
    "D410": "H739",
    "E330": "H760",
    "E331": "H761",
    "E332": "H762",
    "E321": "H763",
    "E335": "H767",
    "E337": "H769",
}
_AGAIN = "write the record again from its source, or leave it out"
_COLOURS = {
    Colour.PALETTE: "palette",
    Colour.GREY_ALPHA: "grey and alpha",
    Colour.RGB: "RGB",
    Colour.RGBA: "RGBA",
}
_ORIENTATION_TURNED = 5


def as_finding(unfit: Unfit, whose: str) -> tuple[str, dict[str, Any]]:
    """The code of a finding and what it says, of what the codec would refuse to store or to decode."""
    code = _CODES[unfit.code]
    return code, {
        "message": f"{whose} {unfit.what}",
        "expected": unfit.expected,
        "found": unfit.found,
        "likely": unfit.likely if isinstance(unfit, Unsound) else None,
        # What is in a record is repaired where it came from; class ids may also be declared, and limits raised.
        "do": unfit.do if code in ("H739", "H767") else _AGAIN,
    }


def mask_findings(
    whose: str, data: bytes, facts: _core.PictureFacts, mask: Mask | None
) -> Iterator[tuple[str, Severity, dict[str, Any]]]:
    """What is wrong with a whole picture as a mask; without a declaration nothing is known of its classes."""
    ids = Ids(mask.classes, mask.ignore) if mask is not None else None
    bits = 16 if ids is not None and ids.wide else 8
    reading = _what_is_read(facts, bits)
    if reading is not None and not (mask is None and _is_wide_grey(facts)):
        yield "H766", "error", _no_ids(whose, facts, bits, reading)
    elif ids is not None:
        try:
            examined_mask(data, ids, None, "full")
        except Unfit as unfit:
            code, said = as_finding(unfit, whose)
            yield code, "warning" if code == "H769" else "error", said


def size_of_mask(whose: str, of: str | None, image: Any, mask: Any) -> dict[str, Any] | None:
    """What to say of a mask that does not cover its image; sizes are (width, height, orientation)."""
    if image is None or mask is None or image[:2] == mask[:2]:
        return None
    likely = None
    if image[:2] == (mask[1], mask[0]):
        likely = "width and height are swapped: one of the two was turned"
        if image[2] >= _ORIENTATION_TURNED:
            likely = "the image is turned by EXIF, and the mask was drawn on the turned one"
    return {
        "message": f"{whose} has another size than its image, {named(of or 'image')}",
        "expected": f"{image[0]:,} × {image[1]:,} (width × height), as the image has",
        "found": f"{mask[0]:,} × {mask[1]:,}",
        "likely": likely,
        "do": "write the mask that belongs to this image, or resize it without smoothing",
    }


def _is_wide_grey(facts: _core.PictureFacts) -> bool:
    # Panoptic ids need 16 bits, and their readers ask for them.
    return facts.format == PictureFormat.PNG and facts.colour == Colour.GREY and facts.bits == 16


def _what_is_read(facts: _core.PictureFacts, bits: int) -> str | None:
    """What TensorFlow makes of the values of a mask; None where it reads them as they are."""
    if facts.format != PictureFormat.PNG:
        return "values that a lossy or coloured format has changed"
    if facts.colour != Colour.GREY:
        return "the brightness of the colours, not class ids"
    if facts.bits == bits:
        return None
    if facts.bits == 16:
        return "the upper 8 of 16 bits: every id below 256 as 0"
    if bits == 16:
        return f"each id times {65535 // ((1 << facts.bits) - 1)}, scaled to 16 bits"
    return f"each id times {255 // ((1 << facts.bits) - 1)}, scaled to 8 bits"


def _no_ids(whose: str, facts: _core.PictureFacts, bits: int, reading: str) -> dict[str, Any]:
    colour = _COLOURS.get(facts.colour)
    if facts.format != PictureFormat.PNG:
        what = shown_format(FORMATS[facts.format])
        likely, do = None, "store masks as PNG: a lossy format changes class ids"
    elif facts.colour == Colour.PALETTE:
        what = "a palette PNG"
        likely = "the index into the palette is the class id, as in the masks of Pascal VOC"
        do = "store the indices: np.array(PIL.Image.open(file)) as a PNG of one channel"
    elif colour is not None:
        what, likely = f"a PNG of colours ({colour})", None
        do = "turn each colour into its class id: rk.layouts.deeplab(colours={(128, 0, 0): 1, …})"
    else:
        what, likely = f"a grey PNG of {facts.bits} bits", None
        do = f"store it with {bits} bits, without scaling its values"
    return {
        "message": f"{whose} is {what}: TensorFlow reads {reading}",
        "expected": f"a PNG of one channel of {bits} bits whose values are class ids",
        "found": what,
        "likely": likely,
        "do": do,
    }
