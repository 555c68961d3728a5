"""The options of `rekord write` that change columns of numbers and texts, and the transforms that they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from rekord.cli.render import clean, cut, whole_number
from rekord.errors import RekordError, error

if TYPE_CHECKING:
    from rekord.transforms.base import Transform

_DO = "rekord write --help"

Casts: TypeAlias = Annotated[
    list[str] | None, typer.Option("--cast", metavar="KEY=DTYPE", help="Another type, if nothing is lost.")
]
Standardized: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--standardize", metavar="KEY", help="Numbers less their mean, by their deviation."),
]
Bucketized: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--bucketize", metavar="KEY=0,10", help="Numbers as buckets that begin there."),
]
Vocabularies: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--vocabulary", metavar="KEY=FILE", help="Words as their places in a file, one a line."),
]
Hashed: TypeAlias = Annotated[
    list[str] | None, typer.Option("--hash", metavar="KEY=N", help="Values as one of N by their hash.")
]
OneHots: TypeAlias = Annotated[
    list[str] | None, typer.Option("--one-hot", metavar="KEY", help="A class as a vector with one 1.")
]
Weighed: TypeAlias = Annotated[
    list[str] | None, typer.Option("--tfidf", metavar="KEY", help="A text as sparse TF-IDF.")
]
Tokenized: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--tokenize", metavar="KEY=HOW", help="A text as ids: words, whitespace or tokenizer.json."),
]
VocabSize: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--vocab-size",
        metavar="N",
        help="Words that are learned, at most.",
        parser=whole_number("--vocab-size", do=_DO),
    ),
]
MaxTokens: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        metavar="N",
        help="Longer texts are cut.",
        parser=whole_number("--max-tokens", do=_DO),
    ),
]


def transforms(
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
            raise _refused(option, str(number), "a --tokenize or --tfidf that it is about", found, do)
    if not any((cast, standardize, bucketize, vocabulary, hashes, one_hot, tfidf, tokenize)):
        return []
    from rekord import transforms as make

    size = 30_000 if vocab_size is None else vocab_size
    made: list[Transform] = []
    for key, value in _pairs("--cast", cast, "price=float32"):
        made.append(make.cast(key, value))
    for key in standardize or ():
        made.append(make.standardize(key))
    for key, value in _pairs("--bucketize", bucketize, "age=18,65"):
        made.append(make.bucketize(key, _numbers("--bucketize", value)))
    for key, value in _pairs("--vocabulary", vocabulary, "city=cities.txt"):
        made.append(make.vocabulary(key, file=value))
    for key, value in _pairs("--hash", hashes, "user=1000"):
        made.append(make.hash_into(key, whole_number("--hash", do="--hash user=1000")(value)))
    for key in one_hot or ():
        made.append(make.one_hot(key))
    for key in tfidf or ():
        made.append(make.tfidf(key, size))
    for text in tokenize or ():
        key, _, how = text.partition("=")
        made.append(make.tokenize(key, how or "words", size=size, max_length=max_tokens))
    return made


def _pairs(option: str, given: Sequence[str] | None, example: str) -> list[tuple[str, str]]:
    pairs = []
    for text in given or ():
        key, _, value = text.partition("=")
        if not key or not value:
            raise _refused(option, text, "a column and a value: KEY=VALUE", text, f"{option} {example}")
        pairs.append((key, value))
    return pairs


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [int(part) if part.strip("+-").isdigit() else float(part) for part in text.split(",")]
    except ValueError:
        raise _refused(option, text, "numbers, parted by commas", text, f"{option} age=18,65") from None


def _refused(option: str, text: str, expected: str, found: str, do: str) -> RekordError:
    shown = cut(clean(repr(text)))
    return error("U605", f"`{option}` cannot be {shown}", expected=expected, found=cut(clean(found)), do=do)
