"""The options of `rekord write` that change rows before they are stored, and the transforms that they ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from rekord.cli.render import clean, cut
from rekord.errors import RekordError, UsageError, error

if TYPE_CHECKING:
    from rekord.transforms.base import Transform

# Pictures.

Resize: TypeAlias = Annotated[
    str | None, typer.Option("--resize", metavar="HxW", help="Pictures of one size: 224x224. Masks alike.")
]
ResizeFilter: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--resize-filter",
        metavar="NAME",
        help="bilinear, nearest, box, hamming, bicubic or lanczos; never for masks.",
    ),
]
ResizeFit: TypeAlias = Annotated[
    str | None,
    typer.Option("--resize-fit", metavar="NAME", help="stretch, pad, crop or within (keeps the aspect)."),
]
Crop: TypeAlias = Annotated[
    str | None, typer.Option("--crop", metavar="HxW", help="The middle of each picture.")
]
Encode: TypeAlias = Annotated[
    str | None,
    typer.Option("--encode", metavar="FORMAT", help="Images as jpeg:90, png or webp:80."),
]
Decode: TypeAlias = Annotated[bool, typer.Option("--decode", help="Pictures as raw pixels. Large.")]
Normalize: TypeAlias = Annotated[
    bool, typer.Option("--normalize", help="Images as float32 from 0 to 1. Very large.")
]
Mean: TypeAlias = Annotated[
    str | None, typer.Option("--mean", metavar="A,B,C", help="Taken off by --normalize; or imagenet.")
]
Std: TypeAlias = Annotated[
    str | None, typer.Option("--std", metavar="A,B,C", help="Divided by in --normalize; or imagenet.")
]


def pictures(
    *,
    resize: str | None,
    resize_filter: str | None,
    resize_fit: str | None,
    crop: str | None,
    encode: str | None,
    decode: bool,
    normalize: bool,
    mean: str | None,
    std: str | None,
) -> list[Transform]:
    """The transforms of pictures, in the order in which they are applied."""
    if not (resize or crop or encode or decode or normalize or resize_filter or resize_fit or mean or std):
        return []  # what makes them is not loaded for nothing
    from rekord.transforms import pictures as forms
    from rekord.transforms import sizes
    from rekord.transforms.arguments import one_of
    from rekord.transforms.canvas import FILTERS

    for option, value, needs in (
        ("--resize-filter", resize_filter, resize),
        ("--resize-fit", resize_fit, resize),
        ("--mean", mean, normalize),
        ("--std", std, normalize),
    ):
        if value is not None and not needs:
            beside = "--resize HxW" if option.startswith("--resize") else "--normalize"
            raise _needs(option, beside)
    if sum([encode is not None, decode, normalize]) > 1:
        raise error(
            "U605",
            "pictures can be stored in one form only",
            expected="one of --encode, --decode and --normalize",
            found=", ".join(
                [
                    name
                    for name, given in (
                        ("--encode", encode),
                        ("--decode", decode),
                        ("--normalize", normalize),
                    )
                    if given
                ]
            ),
            do="leave all but one of them out",
        )
    made: list[Transform] = []
    if resize is not None:
        with said_of("--resize-filter", resize_filter or ""):
            name = one_of("filter", resize_filter or "bilinear", tuple(FILTERS))
        with said_of("--resize-fit", resize_fit or ""):
            fit = one_of("fit", resize_fit or "stretch", sizes.FITS)
        with said_of("--resize", resize, "--resize 224x224"):
            made.append(sizes.resize(*_size(resize), filter=name, fit=fit))  # type: ignore[arg-type]
    if crop is not None:
        with said_of("--crop", crop, "--crop 224x224"):
            made.append(sizes.crop(*_size(crop)))
    if encode is not None:
        with said_of("--encode", encode, "--encode jpeg:90"):
            made.append(_encode(encode))
    if decode:
        made.append(forms.decode())
    if normalize:
        with said_of("--mean", mean or "", "--mean 0.5,0.5,0.5"):
            less = 0.0 if mean is None else _channels(mean)
            forms.normalize(less)  # refused for its own sake
        with said_of("--std", std or "", "--std 0.5,0.5,0.5"):
            made.append(forms.normalize(less, 1.0 if std is None else _channels(std)))
    return made


@contextmanager
def said_of(option: str, text: str, do: str | None = None) -> Iterator[None]:
    """What an argument of a transform is refused for, said of the option that it came from."""
    try:
        yield
    except UsageError as failure:
        if failure.code != "U605":
            raise
        shown = cut(clean(repr(text)))
        # Where names are known the transform says which one was meant: fit="crop".
        meant = do or f"{option} {(failure.do or '').partition('=')[2].strip(chr(34))}"
        raise error(
            "U605", f"`{option}` cannot be {shown}", expected=failure.expected, found=shown, do=meant
        ) from None


def _size(text: str) -> tuple[int, int]:
    """`224x320` as height and width."""
    height, by, width = text.lower().replace("×", "x").partition("x")
    whole = [part.isascii() and part.isdigit() and len(part) < 7 for part in (height, width)]
    if not by or not all(whole):
        raise error("U605", expected="HEIGHTxWIDTH, in pixels")
    return int(height), int(width)


def _encode(text: str) -> Transform:
    """`jpeg:90`, `png` or `webp:80`."""
    from rekord.transforms.pictures import FORMATS, encode

    name, colon, number = text.lower().partition(":")
    name = "jpeg" if name == "jpg" else name
    digits = number.isascii() and number.isdigit() and len(number) < 4
    if name not in FORMATS or (colon and not digits) or (colon and name == "png"):
        raise error("U605", expected="jpeg, jpeg:90, png, webp or webp:80")
    return encode(name, int(number) if colon else None)  # type: ignore[arg-type]


def _channels(text: str) -> Any:
    """`0.5` or `0.5,0.5,0.5`, or the name `imagenet`."""
    if text == "imagenet":
        return text
    try:
        return tuple([float(part) for part in text.split(",")])
    except ValueError:
        raise error("U605", expected="a number, or one for each channel, or imagenet") from None


def _needs(option: str, beside: str) -> RekordError:
    return error(
        "U605",
        f"`{option}` means nothing without `{beside.partition(' ')[0]}`",
        expected=f"{beside} beside it",
        found="only the one",
        do=f"add {beside}, or leave {option} out",
    )
