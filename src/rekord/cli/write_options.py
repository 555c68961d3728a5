"""The options of `rekord write`, parsed: splits, classes, schemas, functions and transforms."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from rekord.cli.console import escape_controls, invalid_option, option_parser, parse_whole_number, truncate
from rekord.cli.options import flag_option, integer_option, text_option
from rekord.errors import RekordError, UsageError, error
from rekord.location import Location

if TYPE_CHECKING:
    from rekord.schema import Schema
    from rekord.transforms.base import Transform


_MAX_FILE_BYTES = 16 << 20
_SPLIT_EXAMPLE = "rekord write SOURCE OUT --split train=0.9,val=0.1"


def parse_splits(text: str | None) -> dict[str, float] | str | None:
    """`train=0.9,val=0.1`, a name, or `source`."""
    if text is None:
        return None
    if "=" not in text:
        # `0.8,0.2` and `train:0.8` are ratios, said wrongly: as a name they would be one split that holds everything.
        if re.search(r"[,:\s]|^[\d.]+$", text):
            raise invalid_option("--split", text, "one name, or names with a ratio each", _SPLIT_EXAMPLE)
        return text
    ratios: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        try:
            ratio = float(number)
        except ValueError:
            raise invalid_option("--split", text, "names with a ratio each", _SPLIT_EXAMPLE, found=part) from None
        if name.strip() in ratios:
            raise invalid_option("--split", text, "each name once", _SPLIT_EXAMPLE, found=part)
        ratios[name.strip()] = ratio
    return ratios


def parse_names(text: str | None) -> tuple[str, ...]:
    """Columns, parted by commas."""
    return tuple([name.strip() for name in (text or "").split(",") if name.strip()])


def parse_classes(text: str | None) -> int | tuple[str, ...] | None:
    """How many classes there are, or their names: a file of them, one a line."""
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    lines = [
        line.strip()
        for line in _read_text("--classes", text, "a number, or a file of names, one a line").splitlines()
    ]
    while lines and not lines[-1]:
        lines.pop()
    if not lines or not all(lines):
        found = "an empty file" if not lines else f"line {lines.index('') + 1} is empty"
        raise _unusable_file_error("--classes", text, "a name in each line", found)
    return tuple(lines)


def parse_ignore(text: str | None) -> int | None:
    """The id of pixels without a class; `none` is said by the caller."""
    if text is None or text == "none":
        return None
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise invalid_option("--ignore", text, "the id of pixels without a class, or none", "--ignore 255")


def read_colours(path: str | None) -> dict[tuple[int, int, int], int] | None:
    """A JSON object: `{"128,64,0": 3}` gives the class id of each colour."""
    if path is None:
        return None
    expected = 'a JSON object such as {"128,64,0": 3}, an id for each colour'
    text = _read_text("--colours", path, expected)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as failure:
        raise _unusable_file_error("--colours", path, expected, str(failure)[:60]) from None
    if not isinstance(document, dict) or not document:
        raise _unusable_file_error("--colours", path, expected, f"a {type(document).__name__}")
    made: dict[tuple[int, int, int], int] = {}
    for colour, number in document.items():
        parts = colour.split(",")
        if len(parts) != 3 or not all(part.strip().isdigit() and len(part) < 8 for part in parts):
            raise _unusable_file_error("--colours", path, expected, f"the colour {colour!r}"[:60])
        if isinstance(number, bool) or not isinstance(number, int):
            raise _unusable_file_error("--colours", path, expected, f"the id {number!r}"[:60])
        red, green, blue = [int(part) for part in parts]
        made[red, green, blue] = number
    return made


def read_schema(path: str | None) -> Schema | None:
    """A schema's JSON, or a schema.pbtxt."""
    if path is None:
        return None
    from rekord.errors import add_location
    from rekord.schema import Schema

    if path.endswith((".pbtxt", ".textproto", ".prototxt")):
        with add_location(path=path):
            return Schema.from_pbtxt(_read_text("--schema", path, "a schema's JSON, or a schema.pbtxt"))
    return Schema.load(path)


def make_ratio_parser(option: str, *, do: str) -> Callable[[object], float]:
    """What reads a number from 0 on."""

    def number(text: object) -> float:
        try:
            value = float(str(text))
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            raise invalid_option(option, str(text), "a share below 1, or a number of rows", do)
        return value

    return option_parser(number)


@dataclass(frozen=True)
class FileFunction:
    """An object of a file that can be called, known by the whole text of it: what it calls may have changed too."""

    func: Callable[[Mapping[str, Any]], Any]
    args: tuple[str]  # the digest of the file, which makes it part of the plan

    def __call__(self, row: Mapping[str, Any]) -> Any:
        return self.func(row)


def load_function(text: str | None) -> Callable[[Mapping[str, Any]], Any] | None:
    """The function that `FILE.py:NAME` names."""
    if text is None:
        return None
    path, colon, name = text.rpartition(":")
    if not colon or not path or not name:
        raise _function_error(text, None, "FILE.py:NAME", text)
    source = _read_text("--map", path, "a Python file", code="U622")
    module_name = "rekord_map_" + hashlib.sha256(os.path.abspath(path).encode()).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise _function_error(text, path, "a file called .py", os.path.basename(path))
    module = importlib.util.module_from_spec(spec)
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)  # what lies beside the file can be imported, as when it is run itself
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as failure:
        del sys.modules[module_name]
        found = f"{type(failure).__name__}: {failure}"
        line = getattr(failure, "lineno", None) if isinstance(failure, SyntaxError) else None
        raise _function_error(text, path, "a file that Python can run", found, line=line) from failure
    found_function = getattr(module, name, None)
    if not callable(found_function):
        from rekord.errors import closest_match

        known = [one for one, value in vars(module).items() if callable(value) and not one.startswith("_")]
        near = closest_match(name, known)
        found = "no such name" if found_function is None else f"a {type(found_function).__name__}"
        raise _function_error(text, path, f"a function `{name}`", found, near=near)
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # other processes do not know the file
    if isinstance(found_function, FunctionType) and inspect.unwrap(found_function).__module__ == module_name:
        return found_function  # as if it were imported, so that Python can go on with what was begun here
    return FileFunction(found_function, (hashlib.sha256(source.encode()).hexdigest(),))


def _read_text(option: str, path: str, expected: str, *, code: str = "U624") -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as failure:
        found = getattr(failure, "strerror", None) or str(failure)
        raise _unusable_file_error(option, path, expected, found[:60].lower(), code) from failure
    if len(data) > _MAX_FILE_BYTES:
        raise _unusable_file_error(option, path, expected, f"more than {_MAX_FILE_BYTES:,} bytes", code)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _unusable_file_error(option, path, expected, "bytes that are no UTF-8", code) from None


def _unusable_file_error(option: str, path: str, expected: str, found: str, code: str = "U624") -> RekordError:
    return error(
        code,
        f"the file for `{option}` cannot be used",
        location=Location(path=path),
        expected=expected,
        found=escape_controls(found),
        do=f"{option} FILE.py:NAME" if code == "U622" else f"fix the file, or name another: {option} FILE",
    )


def _function_error(
    text: str,
    path: str | None,
    expected: str,
    found: str,
    *,
    near: str | None = None,
    line: int | None = None,
) -> RekordError:
    return error(
        "U622",
        f"no function can be loaded from {truncate(escape_controls(repr(text)))}",
        location=Location(path=path, line=line),
        expected=expected,
        found=truncate(escape_controls(found)),
        do=f"did you mean `{near}`?" if near else "--map FILE.py:NAME, where NAME takes a row and returns one",
    )


CastOption: TypeAlias = Annotated[
    list[str] | None, text_option("--cast", "KEY=DTYPE", "Another type, if nothing is lost.")
]
StandardizeOption: TypeAlias = Annotated[
    list[str] | None, text_option("--standardize", "KEY", "Numbers less their mean, by their deviation.")
]
BucketizeOption: TypeAlias = Annotated[
    list[str] | None, text_option("--bucketize", "KEY=0,10", "Numbers as buckets that begin there.")
]
VocabularyOption: TypeAlias = Annotated[
    list[str] | None, text_option("--vocabulary", "KEY=FILE", "Words as their places in a file, one a line.")
]
HashOption: TypeAlias = Annotated[
    list[str] | None, text_option("--hash", "KEY=N", "Values as one of N by their hash.")
]
OneHotOption: TypeAlias = Annotated[
    list[str] | None,
    text_option("--one-hot", "KEY", "A class as a vector with one 1; KEY=10 of ten numbers."),
]
TfidfOption: TypeAlias = Annotated[list[str] | None, text_option("--tfidf", "KEY", "A text as sparse TF-IDF.")]
TokenizeOption: TypeAlias = Annotated[
    list[str] | None,
    text_option("--tokenize", "KEY=HOW", "A text as ids: words, whitespace or tokenizer.json."),
]
VocabSizeOption: TypeAlias = Annotated[int | None, integer_option("--vocab-size", "Words that are learned, at most.")]
MaxTokensOption: TypeAlias = Annotated[int | None, integer_option("--max-tokens", "Longer texts are cut.")]


def parse_column_transforms(
    *,
    cast: Sequence[str] | None,
    standardize: Sequence[str] | None,
    bucketize: Sequence[str] | None,
    vocabulary: Sequence[str] | None,
    hashes: Sequence[str] | None,
    one_hot: Sequence[str] | None,
    tfidf: Sequence[str] | None,
    tokenize: Sequence[str] | None,
    vocab_size: int | None,
    max_tokens: int | None,
) -> list[Transform]:
    """The transforms of columns, in the order in which they are applied."""
    for option, number, needs in (
        ("--vocab-size", vocab_size, [*(tfidf or ()), *(tokenize or ())]),
        ("--max-tokens", max_tokens, tokenize),
    ):
        if number is not None and not needs:
            found = "neither" if option == "--vocab-size" else "no --tokenize"
            do = f"--tokenize text=words {option} {number}"
            raise invalid_option(option, str(number), "a --tokenize or --tfidf that it is about", do, found=found)
    if not any((cast, standardize, bucketize, vocabulary, hashes, one_hot, tfidf, tokenize)):
        return []
    from rekord import transforms as make
    from rekord.arguments import integer

    size = 30_000 if vocab_size is None else integer("--vocab-size", vocab_size, least=3 if tokenize else 1)
    if max_tokens is not None:
        integer("--max-tokens", max_tokens, least=1)
    asked: tuple[tuple[str, Sequence[str] | None, str, Callable[[str], Transform]], ...] = (
        ("--cast", cast, "price=float32", lambda text: make.cast(*_parse_pair(text))),
        ("--standardize", standardize, "price", make.standardize),
        ("--bucketize", bucketize, "age=18,65", lambda text: _parse_bucketize(*_parse_pair(text))),
        ("--vocabulary", vocabulary, "city=cities.txt", lambda text: _parse_vocabulary(*_parse_pair(text))),
        ("--hash", hashes, "user=1000", lambda text: _parse_hash(*_parse_pair(text))),
        ("--one-hot", one_hot, "label=10", _parse_one_hot),
        ("--tfidf", tfidf, "text", lambda text: make.tfidf(text, size)),
        ("--tokenize", tokenize, "text=words", lambda text: _parse_tokenize(text, size, max_tokens)),
    )
    made: list[Transform] = []
    for option, texts, example, one in asked:
        for text in texts or ():
            with attribute_errors_to_option(option, text, f"{option} {example}"):
                made.append(one(text))
    return made


def _parse_bucketize(key: str, text: str) -> Transform:
    from rekord.transforms import bucketize

    try:
        numbers = [int(part) if part.strip("+-").isdigit() else float(part) for part in text.split(",")]
    except ValueError:
        raise error("U605", expected="numbers, parted by commas") from None
    return bucketize(key, numbers)


def _parse_vocabulary(key: str, path: str) -> Transform:
    from rekord.transforms import vocabulary

    return vocabulary(key, file=path)


def _parse_hash(key: str, text: str) -> Transform:
    from rekord.transforms import hash_into

    return hash_into(key, parse_whole_number(text, "--hash"))


def _parse_one_hot(text: str) -> Transform:
    """`label`, or `label=10` where nothing says how many classes there are."""
    from rekord.transforms import one_hot

    if "=" not in text:
        return one_hot(text)
    key, classes = _parse_pair(text)
    return one_hot(key, parse_whole_number(classes, "--one-hot"))


def _parse_tokenize(text: str, size: int, max_tokens: int | None) -> Transform:
    from rekord.transforms import tokenize

    key, _, how = text.partition("=")
    return tokenize(key, how or "words", size=size, max_length=max_tokens)


def _parse_pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    if not key or not value:
        raise error("U605", expected="a column and a value: KEY=VALUE")
    return key, value


# Images.

ResizeOption: TypeAlias = Annotated[
    str | None, text_option("--resize", "HxW", "Images of one size: 224x224. Masks alike.")
]
ResizeFilterOption: TypeAlias = Annotated[
    str | None,
    text_option("--resize-filter", "NAME", "bilinear, nearest, box, hamming, bicubic or lanczos; never for masks."),
]
ResizeFitOption: TypeAlias = Annotated[
    str | None, text_option("--resize-fit", "NAME", "stretch, pad, crop or within (keeps the aspect).")
]
CropOption: TypeAlias = Annotated[str | None, text_option("--crop", "HxW", "The middle of each image.")]
EncodeOption: TypeAlias = Annotated[
    str | None, text_option("--encode", "FORMAT", "Images as jpeg:90, png or webp:80.")
]
DecodeOption: TypeAlias = Annotated[bool, flag_option("--decode", "Images as raw pixels. Large.")]
NormalizeOption: TypeAlias = Annotated[bool, flag_option("--normalize", "Images as float32 from 0 to 1. Very large.")]
MeanOption: TypeAlias = Annotated[
    str | None, text_option("--mean", "A,B,C", "Taken off by --normalize; or imagenet.")
]
StdOption: TypeAlias = Annotated[str | None, text_option("--std", "A,B,C", "Divided by in --normalize; or imagenet.")]


def parse_image_transforms(
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
    """The transforms of images, in the order in which they are applied."""
    if not (resize or crop or encode or decode or normalize or resize_filter or resize_fit or mean or std):
        return []  # what makes them is not loaded for nothing
    from rekord.arguments import one_of
    from rekord.transforms import images
    from rekord.transforms import images as forms
    from rekord.transforms.image_row import FILTERS

    for option, value, needs in (
        ("--resize-filter", resize_filter, resize),
        ("--resize-fit", resize_fit, resize),
        ("--mean", mean, normalize),
        ("--std", std, normalize),
    ):
        if value is not None and not needs:
            beside = "--resize HxW" if option.startswith("--resize") else "--normalize"
            raise error(
                "U605",
                f"`{option}` means nothing without `{beside.partition(' ')[0]}`",
                expected=f"{beside} beside it",
                found="only the one",
                do=f"add {beside}, or leave {option} out",
            )
    if sum([encode is not None, decode, normalize]) > 1:
        raise error(
            "U605",
            "images can be stored in one form only",
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
        with attribute_errors_to_option("--resize-filter", resize_filter or ""):
            name = one_of("filter", resize_filter or "bilinear", tuple(FILTERS))
        with attribute_errors_to_option("--resize-fit", resize_fit or ""):
            fit = one_of("fit", resize_fit or "stretch", images.FIT_MODES)
        with attribute_errors_to_option("--resize", resize, "--resize 224x224"):
            made.append(images.resize(*_parse_size(resize), filter=name, fit=fit))  # type: ignore[arg-type]
    if crop is not None:
        with attribute_errors_to_option("--crop", crop, "--crop 224x224"):
            made.append(images.crop(*_parse_size(crop)))
    if encode is not None:
        with attribute_errors_to_option("--encode", encode, "--encode jpeg:90"):
            made.append(_parse_encode(encode))
    if decode:
        made.append(forms.decode())
    if normalize:
        with attribute_errors_to_option("--mean", mean or "", "--mean 0.5,0.5,0.5"):
            less = 0.0 if mean is None else _parse_channels(mean)
            forms.normalize(less)  # refused for its own sake
        with attribute_errors_to_option("--std", std or "", "--std 0.5,0.5,0.5"):
            made.append(forms.normalize(less, 1.0 if std is None else _parse_channels(std)))
    return made


@contextmanager
def attribute_errors_to_option(option: str, text: str, do: str | None = None) -> Iterator[None]:
    """What an argument of a transform is refused for, said of the option that it came from."""
    try:
        yield
    except UsageError as failure:
        if failure.code != "U605":
            raise
        shown = truncate(escape_controls(repr(text)))
        # Where names are known the transform says which one was meant: fit="crop".
        meant = do or f"{option} {(failure.do or '').partition('=')[2].strip(chr(34))}"
        raise error(
            "U605", f"`{option}` cannot be {shown}", expected=failure.expected, found=shown, do=meant
        ) from None


def _parse_size(text: str) -> tuple[int, int]:
    """`224x320` as height and width."""
    height, by, width = text.lower().replace("×", "x").partition("x")
    whole = [part.isascii() and part.isdigit() and len(part) < 7 for part in (height, width)]
    if not by or not all(whole):
        raise error("U605", expected="HEIGHTxWIDTH, in pixels")
    return int(height), int(width)


def _parse_encode(text: str) -> Transform:
    """`jpeg:90`, `png` or `webp:80`."""
    from rekord.transforms.images import ENCODE_FORMATS, encode

    name, colon, number = text.lower().partition(":")
    name = "jpeg" if name == "jpg" else name
    digits = number.isascii() and number.isdigit() and len(number) < 4
    if name not in ENCODE_FORMATS or (colon and not digits) or (colon and name == "png"):
        raise error("U605", expected="jpeg, jpeg:90, png, webp or webp:80")
    return encode(name, int(number) if colon else None)  # type: ignore[arg-type]


def _parse_channels(text: str) -> Any:
    """`0.5` or `0.5,0.5,0.5`, or the name `imagenet`."""
    if text == "imagenet":
        return text
    try:
        return tuple([float(part) for part in text.split(",")])
    except ValueError:
        raise error("U605", expected="a number, or one for each channel, or imagenet") from None
