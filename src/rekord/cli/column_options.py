"""The options of `rekord write` that change columns of numbers and texts, and the transforms that they ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from rekord.cli import shared_options as shared
from rekord.cli.render import clean, cut, whole_number
from rekord.cli.transform_options import said_of
from rekord.errors import RekordError, error

if TYPE_CHECKING:
    from rekord.transforms.base import Transform

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
    list[str] | None,
    typer.Option("--one-hot", metavar="KEY", help="A class as a vector with one 1; KEY=10 of ten numbers."),
]
Weighed: TypeAlias = Annotated[
    list[str] | None, typer.Option("--tfidf", metavar="KEY", help="A text as sparse TF-IDF.")
]
Tokenized: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--tokenize", metavar="KEY=HOW", help="A text as ids: words, whitespace or tokenizer.json."),
]
VocabSize: TypeAlias = Annotated[
    int | None, shared.number("--vocab-size", "Words that are learned, at most.")
]
MaxTokens: TypeAlias = Annotated[int | None, shared.number("--max-tokens", "Longer texts are cut.")]


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
    from rekord.transforms.one_column import whole

    size = 30_000 if vocab_size is None else whole("--vocab-size", vocab_size, least=3 if tokenize else 1)
    if max_tokens is not None:
        whole("--max-tokens", max_tokens, least=1)
    asked: tuple[tuple[str, Sequence[str] | None, str, Callable[[str], Transform]], ...] = (
        ("--cast", cast, "price=float32", lambda text: make.cast(*_pair(text))),
        ("--standardize", standardize, "price", make.standardize),
        ("--bucketize", bucketize, "age=18,65", lambda text: _bucketize(*_pair(text))),
        ("--vocabulary", vocabulary, "city=cities.txt", lambda text: _vocabulary(*_pair(text))),
        ("--hash", hashes, "user=1000", lambda text: _hash(*_pair(text))),
        ("--one-hot", one_hot, "label=10", _one_hot),
        ("--tfidf", tfidf, "text", lambda text: make.tfidf(text, size)),
        ("--tokenize", tokenize, "text=words", lambda text: _tokenize(text, size, max_tokens)),
    )
    made: list[Transform] = []
    for option, texts, example, one in asked:
        for text in texts or ():
            with said_of(option, text, f"{option} {example}"):
                made.append(one(text))
    return made


def _bucketize(key: str, text: str) -> Transform:
    from rekord.transforms import bucketize

    try:
        numbers = [int(part) if part.strip("+-").isdigit() else float(part) for part in text.split(",")]
    except ValueError:
        raise error("U605", expected="numbers, parted by commas") from None
    return bucketize(key, numbers)


def _vocabulary(key: str, path: str) -> Transform:
    from rekord.transforms import vocabulary

    return vocabulary(key, file=path)


def _hash(key: str, text: str) -> Transform:
    from rekord.transforms import hash_into

    return hash_into(key, whole_number("--hash")(text))


def _one_hot(text: str) -> Transform:
    """`label`, or `label=10` where nothing says how many classes there are."""
    from rekord.transforms import one_hot

    if "=" not in text:
        return one_hot(text)
    key, classes = _pair(text)
    return one_hot(key, whole_number("--one-hot")(classes))


def _tokenize(text: str, size: int, max_tokens: int | None) -> Transform:
    from rekord.transforms import tokenize

    key, _, how = text.partition("=")
    return tokenize(key, how or "words", size=size, max_length=max_tokens)


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    if not key or not value:
        raise error("U605", expected="a column and a value: KEY=VALUE")
    return key, value


def _refused(option: str, text: str, expected: str, found: str, do: str) -> RekordError:
    shown = cut(clean(repr(text)))
    return error("U605", f"`{option}` cannot be {shown}", expected=expected, found=cut(clean(found)), do=do)
