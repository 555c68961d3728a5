"""What the layouts of images share: one look at the image of a row, and what to say about it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from rekord.codec.looking import Picture, look_at_image, shown_format
from rekord.codec.pictures import stored_image
from rekord.codec.unfit import Unfit
from rekord.errors import error
from rekord.layouts.base import Remark, Verify
from rekord.location import Location
from rekord.schema import Image

_CHANNELS = {1: "grey", 2: "grey with alpha", 3: "RGB", 4: "RGBA"}
_CMYK = "H731"


def image_of(row: Mapping[str, Any], verify: Verify, *, readers: str) -> tuple[Picture, list[Remark]]:
    """The image of a canonical row, which must be one that `readers` decode: JPEG or PNG."""
    value = row.get("image")
    if value is None:
        raise error(
            "E301",
            "`image` has no value, and it is required",
            location=Location(feature="image"),
            expected="a value for Image",
            found="None, or no such key",
            do="give the row an image: encoded bytes, a pathlib.Path, or an array",
        )
    picture = looked_at(value, Image(), name="image", verify=verify)
    if picture.format not in ("jpeg", "png"):
        raise error(
            "E321",
            f"`image` is {shown_format(picture.format)}, which {readers} do not decode",
            location=Location(path=picture.path, feature="image"),
            expected="JPEG or PNG",
            found=shown_format(picture.format),
            do="convert it to PNG, or write with schema= and rk.Image() instead of a layout",
        )
    remarks = [Remark(code, "image", what) for code, what in picture.remarks]
    # The keys say three channels of eight bits, and readers ask their decoder for these.
    if (picture.channels != 3 or picture.bits > 8) and _CMYK not in [remark.code for remark in remarks]:
        whose = "the image" if picture.path is None else os.path.basename(picture.path)
        kind = _CHANNELS.get(picture.channels, f"{picture.channels} channels")
        what = f"{whose} is {kind} of {picture.bits} bits: it is stored so, and readers turn it into RGB of 8 bits"
        remarks.append(Remark("H738", "image", what))
    return picture, remarks


def looked_at(value: Any, image: Image, *, name: str, verify: Verify) -> Picture:
    """An image as it is stored: encoded bytes, a file, or pixels, which are PNG unless `image` says otherwise."""
    if not isinstance(value, np.ndarray):
        return look_at_image(value, name=name, verify=verify)
    try:
        encoded = stored_image(value, image)
    except Unfit as unfit:
        raise unfit.told(name) from unfit.__cause__
    return look_at_image(encoded, name=name, verify="headers")
