"""The options of `rekord write`, parsed: splits, classes, schemas, column types, functions and transforms."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import json
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from rekord.cli.console import escape_controls, invalid_option, option_parser, parse_integer, truncate
from rekord.cli.options import Panel, flag_option, integer_option, option_group, text_option
from rekord.errors import RekordError, UsageError, add_location, closest_match, error
from rekord.location import Location

if TYPE_CHECKING:
    from rekord.schema import Feature, Schema
    from rekord.transforms.base import Transform

_MAX_FILE_BYTES = 16 << 20
_SPLIT_EXAMPLE = "--split train=0.9,val=0.1"


def parse_splits(text: str | None) -> dict[str, float] | str | None:
    """`train=0.9,val=0.1`, a name, or `source`."""
    if text is None:
        return None
    if "=" not in text:
        # `0.8,0.2` and `train:0.8` are meant as ratios: as a name they would be one split that holds everything.
        if re.search(r"[,:\s]|^[\d.]+$", text):
            raise invalid_option("--split", text, "a name, or a ratio for each name", _SPLIT_EXAMPLE)
        return text
    ratios: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        try:
            ratio = float(number)
        except ValueError:
            raise invalid_option("--split", text, "a ratio for each name", _SPLIT_EXAMPLE, found=part) from None
        if name.strip() in ratios:
            raise invalid_option("--split", text, "each name once", _SPLIT_EXAMPLE, found=part)
        ratios[name.strip()] = ratio
    total = sum(ratios.values())
    if min(ratios.values()) > 0 and math.isfinite(total) and abs(total - 1) > 1e-6:
        # `train=80,val=20`: the ratios that were meant can be computed.
        terms = " + ".join(f"{ratio:g}" for ratio in ratios.values())
        found = terms if len(ratios) == 1 else f"{terms} = {total:g}"
        raise invalid_option("--split", text, "ratios that add up to 1", _normalise_ratios(ratios), found=found)
    return ratios


def _normalise_ratios(ratios: Mapping[str, float]) -> str:
    """The `--split` with the same proportions whose ratios, as they are printed, add up to 1."""
    total = sum(ratios.values())
    *others, last = ratios
    shares = {name: round(ratios[name] / total, 4) for name in others}
    shares[last] = round(1 - sum(shares.values()), 4)
    if min(shares.values()) <= 0:
        return _SPLIT_EXAMPLE
    return f"--split {shlex.quote(','.join(f'{name}={share:g}' for name, share in shares.items()))}"


def parse_names(text: str | None) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple([name.strip() for name in (text or "").split(",") if name.strip()])


def parse_optional_names(text: str | None) -> list[str] | None:
    """Names separated by commas, or None if the option was not given."""
    return None if text is None else list(parse_names(text))


def parse_classes(text: str | None) -> int | tuple[str, ...] | None:
    """The number of classes, or their names, read from a file with one per line."""
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    lines = [
        line.strip()
        for line in _read_text("--classes", text, "a number, or a file with one class name per line").splitlines()
    ]
    while lines and not lines[-1]:
        lines.pop()
    if not lines or not all(lines):
        found = "an empty file" if not lines else f"an empty line {lines.index('') + 1}"
        raise _unusable_file_error("--classes", text, "one class name per line", found)
    return tuple(lines)


def parse_ignore(text: str | None) -> int | None:
    """The id of pixels without a class; None if there is none."""
    if text is None or text == "none":
        return None
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise invalid_option("--ignore", text, "a class id to ignore, or none", "--ignore 255")


def read_colours(path: str | None, ignore: int | None) -> dict[tuple[int, int, int], int] | None:
    """Class ids by colour: `0=0,255=1` for grey levels, or a file.

    The file is a JSON object, `{"128,64,0": 3}`, or a table with a class per line: `red green blue name`.
    """
    if path is None:
        return None
    if re.fullmatch(r"\d{1,7}=\d{1,7}(,\d{1,7}=\d{1,7})*", path, re.ASCII):
        levels = [[int(number) for number in pair.split("=")] for pair in path.split(",")]
        return {(level, level, level): number for level, number in levels}
    expected = 'grey levels such as 0=0,255=1, a JSON object such as {"128,64,0": 3}, or lines of red green blue name'
    text = _read_text("--colours", path, expected)
    if not path.lower().endswith(".json") and not text.lstrip().startswith("{"):
        from rekord.sources.colour_tables import read_colour_table

        try:
            return read_colour_table(path, 255 if ignore is None else ignore).colours
        except RekordError as failure:
            raise _unusable_file_error("--colours", path, expected, failure.found or failure.what) from None
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
    """The schema in a JSON or .pbtxt file."""
    if path is None:
        return None
    from rekord.errors import add_location
    from rekord.schema import Schema

    if path.endswith((".pbtxt", ".textproto", ".prototxt")):
        with add_location(path=path):
            return Schema.from_pbtxt(_read_text("--schema", path, "a schema: JSON or .pbtxt"))
    return Schema.load(path)


def make_ratio_parser(option: str, *, do: str) -> Callable[[object], float]:
    """The parser of a number ≥ 0."""

    def number(text: object) -> float:
        try:
            value = float(str(text))
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            raise invalid_option(option, str(text), "a fraction of the rows below 1, or a number of rows", do)
        return value

    return option_parser(number)


@dataclass(frozen=True)
class FileFunction:
    """A callable in a Python file, identified by the text of the whole file: functions it calls may change too."""

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
        raise _function_error(text, path, "a file whose name ends in .py", os.path.basename(path))
    module = importlib.util.module_from_spec(spec)
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)  # modules next to the file can be imported, as when it is run itself
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
        return found_function  # as if it were imported: a conversion begun here can be resumed from Python
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
        raise _unusable_file_error(option, path, expected, "bytes that are not UTF-8", code) from None


def _unusable_file_error(option: str, path: str, expected: str, found: str, code: str = "U624") -> RekordError:
    return error(
        code,
        f"the file for `{option}` cannot be used",
        location=Location(path=path),
        expected=expected,
        found=escape_controls(found),
        do=f"{option} FILE.py:NAME" if code == "U622" else f"fix the file, or pass another: {option} FILE",
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
        f"cannot load a function from {truncate(escape_controls(repr(text)))}",
        location=Location(path=path, line=line),
        expected=expected,
        found=truncate(escape_controls(found)),
        do=f"did you mean `{near}`?"
        if near
        else "--map FILE.py:NAME, where NAME is a function that takes a row and returns one",
    )


@option_group(Panel.COLUMN_TRANSFORMS)
class ColumnTransformOptions:
    """Transforms of columns, and the sizes that they learn."""

    cast: list[str] | None = text_option("--cast", "KEY=DTYPE", "Convert to another dtype, if no value changes.")
    standardize: list[str] | None = text_option(
        "--standardize", "KEY", "Subtract the mean and divide by the standard deviation."
    )
    bucketize: list[str] | None = text_option(
        "--bucketize", "KEY=0,10", "Replace numbers by bucket ids between these boundaries."
    )
    vocabulary: list[str] | None = text_option(
        "--vocabulary", "KEY=FILE", "Replace words by their position in a file with one word per line."
    )
    hashes: list[str] | None = text_option("--hash", "KEY=N", "Hash values into N buckets.")
    one_hot: list[str] | None = text_option(
        "--one-hot", "KEY", "One-hot encode a class; KEY=10 if the number of classes is unknown."
    )
    tfidf: list[str] | None = text_option("--tfidf", "KEY", "Encode text as sparse TF-IDF vectors.")
    tokenize: list[str] | None = text_option(
        "--tokenize", "KEY=HOW", "Encode text as token ids; HOW: words, whitespace or a tokenizer.json."
    )
    mono: bool = flag_option("--mono", "Average the channels of audio.")
    resample: int | None = integer_option("--resample", "Resample audio to N samples per second.")
    log_mel: int | None = integer_option("--log-mel", "Replace audio by log-mel spectrograms with N bands.")
    vocab_size: int | None = integer_option(
        "--vocab-size", "Maximum number of words that --tokenize and --tfidf learn."
    )
    max_tokens: int | None = integer_option("--max-tokens", "Truncate tokenized texts to N tokens.")


def parse_column_transforms(given: ColumnTransformOptions) -> list[Transform]:
    """The transforms of columns, in the order in which they apply."""
    for option, number, needs in (
        ("--vocab-size", given.vocab_size, [*(given.tfidf or ()), *(given.tokenize or ())]),
        ("--max-tokens", given.max_tokens, given.tokenize),
    ):
        if number is not None and not needs:
            expected = "--tokenize or --tfidf" if option == "--vocab-size" else "--tokenize"
            do = f"--tokenize text=words {option} {number}"
            raise invalid_option(option, str(number), f"{expected} next to it", do, found="neither")
    if not any(vars(given).values()):
        return []
    from rekord import transforms as make
    from rekord.arguments import integer

    least = 3 if given.tokenize else 1
    size = 30_000 if given.vocab_size is None else integer("--vocab-size", given.vocab_size, least=least)
    if given.max_tokens is not None:
        integer("--max-tokens", given.max_tokens, least=1)
    requested: tuple[tuple[str, Sequence[str] | None, str, Callable[[str], Transform]], ...] = (
        ("--cast", given.cast, "price=float32", lambda text: make.cast(*_parse_pair(text))),
        ("--standardize", given.standardize, "price", make.standardize),
        ("--bucketize", given.bucketize, "age=18,65", lambda text: _parse_bucketize(*_parse_pair(text))),
        ("--vocabulary", given.vocabulary, "city=cities.txt", _parse_vocabulary),
        ("--hash", given.hashes, "user=1000", _parse_hash),
        ("--one-hot", given.one_hot, "label=10", _parse_one_hot),
        ("--tfidf", given.tfidf, "text", lambda text: make.tfidf(text, size)),
        ("--tokenize", given.tokenize, "text=words", lambda text: _parse_tokenize(text, size, given.max_tokens)),
    )
    made: list[Transform] = []
    if given.mono:
        made.append(make.mono())
    for option, number, build in (
        ("--resample", given.resample, make.resample),
        ("--log-mel", given.log_mel, lambda bands: make.spectrogram(mels=bands)),
    ):
        if number is not None:
            with attribute_errors_to_option(
                option, str(number), f"{option} {16_000 if option == '--resample' else 80}"
            ):
                made.append(build(number))
    for option, texts, example, parse in requested:
        for text in texts or ():
            with attribute_errors_to_option(option, text, f"{option} {example}"):
                made.append(parse(text))
    return made


def _parse_bucketize(key: str, text: str) -> Transform:
    from rekord.transforms import bucketize

    try:
        numbers = [int(part) if part.strip("+-").isdigit() else float(part) for part in text.split(",")]
    except ValueError:
        raise error("U605", expected="numbers separated by commas") from None
    return bucketize(key, numbers)


def _parse_vocabulary(text: str) -> Transform:
    from rekord.transforms import vocabulary

    key, path = _parse_pair(text)
    return vocabulary(key, file=path)


def _parse_hash(text: str) -> Transform:
    from rekord.transforms import hash_into

    key, buckets = _parse_pair(text)
    return hash_into(key, parse_integer(buckets, "--hash"))


def _parse_one_hot(text: str) -> Transform:
    """`label`, or `label=10` if the number of classes is unknown."""
    from rekord.transforms import one_hot

    if "=" not in text:
        return one_hot(text)
    key, classes = _parse_pair(text)
    return one_hot(key, parse_integer(classes, "--one-hot"))


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


@option_group(Panel.IMAGE_TRANSFORMS)
class ImageTransformOptions:
    """Transforms of images and masks."""

    resize: str | None = text_option("--resize", "HxW", "Resize images and masks, for example to 224x224.")
    resize_filter: str | None = text_option(
        "--resize-filter",
        "NAME",
        "Filter of --resize for images: bilinear (default), nearest, box, hamming, bicubic or lanczos.",
    )
    resize_fit: str | None = text_option(
        "--resize-fit", "NAME", "How --resize fits images: stretch (default), pad, crop or within (no padding)."
    )
    orient: bool = flag_option("--orient", "Turn images upright as their EXIF says, with masks.")
    strip_metadata: bool = flag_option(
        "--strip-metadata",
        "Remove EXIF (GPS positions, maker notes) and texts from images, without encoding them again.",
    )
    crop: str | None = text_option("--crop", "HxW", "Crop images and masks to this size at the centre.")
    encode: str | None = text_option("--encode", "FORMAT", "Re-encode images: jpeg:90, png or webp:80.")
    decode: bool = flag_option("--decode", "Store images as raw pixels (large).")
    normalize: bool = flag_option("--normalize", "Store images as float32 from 0 to 1 (very large).")
    mean: str | None = text_option("--mean", "A,B,C", "Mean that --normalize subtracts, per channel; or imagenet.")
    std: str | None = text_option(
        "--std", "A,B,C", "Standard deviation that --normalize divides by, per channel; or imagenet."
    )


def parse_image_transforms(given: ImageTransformOptions) -> list[Transform]:
    """The transforms of images, in the order in which they apply."""
    if not any(vars(given).values()):
        return []  # without loading the transforms
    from rekord.arguments import one_of
    from rekord.transforms import images
    from rekord.transforms.image_row import FILTERS

    for option, value, needs in (
        ("--resize-filter", given.resize_filter, given.resize),
        ("--resize-fit", given.resize_fit, given.resize),
        ("--mean", given.mean, given.normalize),
        ("--std", given.std, given.normalize),
    ):
        if value is not None and not needs:
            needed = "--resize HxW" if option.startswith("--resize") else "--normalize"
            raise error(
                "U605",
                f"`{option}` has no effect without `{needed.partition(' ')[0]}`",
                expected=f"{needed} next to it",
                found=f"{option} alone",
                do=f"add {needed}, or leave {option} out",
            )
    forms = {"--encode": given.encode is not None, "--decode": given.decode, "--normalize": given.normalize}
    chosen = [option for option, is_chosen in forms.items() if is_chosen]
    if len(chosen) > 1:
        raise error(
            "U605",
            "images can be stored in one form only",
            expected="one of --encode, --decode and --normalize",
            found=", ".join(chosen),
            do="leave all but one of them out",
        )
    made: list[Transform] = []
    made.extend(parse_metadata_transforms(orient=given.orient, strip_metadata=given.strip_metadata))
    if given.resize is not None:
        with attribute_errors_to_option("--resize-filter", given.resize_filter or ""):
            name = one_of("filter", given.resize_filter or "bilinear", tuple(FILTERS))
        with attribute_errors_to_option("--resize-fit", given.resize_fit or ""):
            fit = one_of("fit", given.resize_fit or "stretch", images.FIT_MODES)
        with attribute_errors_to_option("--resize", given.resize, "--resize 224x224"):
            made.append(images.resize(*parse_size(given.resize), filter=name, fit=fit))  # type: ignore[arg-type]
    if given.crop is not None:
        with attribute_errors_to_option("--crop", given.crop, "--crop 224x224"):
            made.append(images.crop(*parse_size(given.crop)))
    if given.encode is not None:
        with attribute_errors_to_option("--encode", given.encode, "--encode jpeg:90"):
            made.append(_parse_encode(given.encode))
    if given.decode:
        made.append(images.decode())
    if given.normalize:
        with attribute_errors_to_option("--mean", given.mean or "", "--mean 0.5,0.5,0.5"):
            less = 0.0 if given.mean is None else _parse_channels(given.mean)
            images.normalize(less)  # an error in the mean is one of --mean, not of --std
        with attribute_errors_to_option("--std", given.std or "", "--std 0.5,0.5,0.5"):
            made.append(images.normalize(less, 1.0 if given.std is None else _parse_channels(given.std)))
    return made


def parse_metadata_transforms(*, orient: bool, strip_metadata: bool) -> list[Transform]:
    """The transforms of what images contain besides pixels."""
    if not orient and not strip_metadata:
        return []
    from rekord import transforms

    return [*([transforms.orient()] if orient else []), *([transforms.strip_metadata()] if strip_metadata else [])]


@contextmanager
def attribute_errors_to_option(option: str, text: str, do: str | None = None) -> Iterator[None]:
    """An invalid argument of a transform, reported as the option that it came from."""
    try:
        yield
    except UsageError as failure:
        if failure.code != "U605":
            raise
        shown = truncate(escape_controls(repr(text)))
        # Where the names are known, the transform proposes one: fit="crop".
        meant = do or f"{option} {(failure.do or '').partition('=')[2].strip(chr(34))}"
        raise error(
            "U605", f"`{option}` cannot be {shown}", expected=failure.expected, found=shown, do=meant
        ) from None


def parse_size(text: str) -> tuple[int, int]:
    """`224x320` as height and width."""
    height, by, width = text.lower().replace("×", "x").partition("x")
    whole = [part.isascii() and part.isdigit() and len(part) < 7 for part in (height, width)]
    if not by or not all(whole):
        raise error("U605", expected="HEIGHTxWIDTH in pixels")
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
        raise error("U605", expected="a number, one number per channel, or imagenet") from None


_COLUMN_EXAMPLE = "--column zip=text --column age=float32"


def parse_columns(texts: Sequence[str] | None) -> dict[str, Feature] | None:
    """`age=float32`, `churn=label`, `vec=float32(shape=(3,))`: the declared features by column."""
    if not texts:
        return None
    found: dict[str, Feature] = {}
    for text in texts:
        name, equals, kind = text.partition("=")
        name = name.strip()
        if not equals or not name or not kind.strip():
            raise _invalid_column(text, "NAME=TYPE", text)
        if name in found:
            raise _invalid_column(text, "each column once", text)
        with add_location(feature=name):
            found[name] = parse_feature(kind.strip(), text)
    return found


def parse_feature(kind: str, text: str) -> Feature:
    """A feature type by its name, ignoring case, with arguments as in Python: `label(["cat", "dog"])`."""
    from rekord.schema.base import FEATURE_TYPES, FLOAT_DTYPES, INTEGER_DTYPES

    name, arguments, options = _parse_call(kind, text)
    types = {one.lower(): cls for one, cls in FEATURE_TYPES.items() if one != "Payload"}
    names = {one: (types["int64"], {"dtype": one}) for one in INTEGER_DTYPES}
    names |= {one: (types["float32"], {"dtype": one}) for one in FLOAT_DTYPES}
    names |= {one: (cls, {}) for one, cls in types.items()}
    if name.lower() not in names:
        known = [*types, *[one for one in names if one not in types]]
        near = closest_match(name.lower(), known)
        do = text[: text.index("=") + 1] + near if near else None
        raise _invalid_column(text, "one of " + ", ".join(known), name, do)
    cls, given = names[name.lower()]
    try:
        return cls(*arguments, **{**given, **options})
    except RekordError:
        raise
    except TypeError as failure:
        raise _invalid_column(text, f"the arguments of rk.{cls.__name__}", str(failure)) from None


def _parse_call(kind: str, text: str) -> tuple[str, list[Any], dict[str, Any]]:
    if "(" not in kind:
        return kind, [], {}
    expected = "a type with literal arguments, such as label(['cat', 'dog'])"
    try:
        call = ast.parse(kind, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError(kind)
        if any(keyword.arg is None for keyword in call.keywords):
            raise ValueError(kind)
        arguments = [ast.literal_eval(one) for one in call.args]
        options = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise _invalid_column(text, expected, kind) from None
    return call.func.id, arguments, options


def _invalid_column(text: str, expected: str, found: str, do: str | None = None) -> RekordError:
    import shlex

    shown = _COLUMN_EXAMPLE if do is None else f"--column {shlex.quote(escape_controls(do))}"
    return invalid_option("--column", text, expected, shown, found=found)
