"""The options of `rekord write` that change rows before they are stored, and the transforms that they ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from rekord.cli.render import clean, cut
from rekord.errors import RekordError, error

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
        height, width = _size("--resize", resize)
        made.append(
            sizes.resize(
                height,
                width,
                filter=resize_filter or "bilinear",  # type: ignore[arg-type]
                fit=resize_fit or "stretch",  # type: ignore[arg-type]
            )
        )
    if crop is not None:
        made.append(sizes.crop(*_size("--crop", crop)))
    if encode is not None:
        made.append(_encode(encode))
    if decode:
        made.append(forms.decode())
    if normalize:
        made.append(
            forms.normalize(
                _channels("--mean", mean) if mean is not None else 0.0,
                _channels("--std", std) if std is not None else 1.0,
            )
        )
    return made


def _size(option: str, text: str) -> tuple[int, int]:
    """`224x320` as height and width."""
    height, by, width = text.lower().replace("×", "x").partition("x")
    whole = [part.isascii() and part.isdigit() and len(part) < 7 for part in (height, width)]
    if not by or not all(whole):
        raise _refused(option, text, "HEIGHTxWIDTH, in pixels", f"{option} 224x224")
    return int(height), int(width)


def _encode(text: str) -> Transform:
    """`jpeg:90`, `png` or `webp:80`."""
    from rekord.transforms.pictures import FORMATS, encode

    name, colon, number = text.lower().partition(":")
    name = "jpeg" if name == "jpg" else name
    digits = number.isascii() and number.isdigit() and len(number) < 4
    if name not in FORMATS or (colon and not digits) or (colon and name == "png"):
        raise _refused("--encode", text, "jpeg, jpeg:90, png, webp or webp:80", "--encode jpeg:90")
    return encode(name, int(number) if colon else None)  # type: ignore[arg-type]


def _channels(option: str, text: str) -> Any:
    """`0.5` or `0.5,0.5,0.5`, or the name `imagenet`."""
    if text == "imagenet":
        return text
    try:
        return tuple([float(part) for part in text.split(",")])
    except ValueError:
        raise _refused(
            option, text, "a number, or one for each channel, or imagenet", f"{option} 0.5,0.5,0.5"
        ) from None


def _needs(option: str, beside: str) -> RekordError:
    return error(
        "U605",
        f"`{option}` means nothing without `{beside.partition(' ')[0]}`",
        expected=f"{beside} beside it",
        found="only the one",
        do=f"add {beside}, or leave {option} out",
    )


def _refused(option: str, text: str, expected: str, do: str) -> RekordError:
    shown = cut(clean(repr(text)))
    return error("U605", f"`{option}` cannot be {shown}", expected=expected, found=shown, do=do)
