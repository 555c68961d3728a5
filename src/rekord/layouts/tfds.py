"""The files next to the shards that let `tfds.builder_from_directory` open a dataset."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rekord.errors import RekordError, error, preview
from rekord.schema import Schema
from rekord.schema.interop import tfds
from rekord.schema.interop.tfds import FEATURES_NAME, INFO_NAME

SHARD_TEMPLATE = "{name}-{split}.tfrecord-{shard:05d}-of-{shards:05d}"
"""The names of shards in TFDS."""

# Not \w: TFDS accepts letters of every script, but its patterns for file names only have these.
_NAME_PATTERN = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")
_VERSION_PATTERN = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}")
_SPLIT_PATTERN = re.compile(r"[a-zA-Z0-9_-]+")


def format_shard_name(name: str, split: str, shard: int, shards: int) -> str:
    """The name of one shard's file."""
    return SHARD_TEMPLATE.format(name=name, split=split, shard=shard, shards=shards)


def check_tfds(
    schema: Schema, name: str, version: str, splits: Sequence[str], compression: str | None = None
) -> None:
    """Raise for anything that TFDS could not open, before writing."""
    for what, value, pattern, example in (
        ("name", name, _NAME_PATTERN, "flowers"),
        ("version", version, _VERSION_PATTERN, "1.0.0"),
        *[("split", split, _SPLIT_PATTERN, "train") for split in splits],
    ):
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise _invalid_name_error(what, value, example)
    if compression is not None:
        first = next(iter(schema), "")
        failure = tfds.unsupported_column_error(
            first, "files without compression", f"compression {preview(compression)}"
        )
        failure.what = "TFDS dataset cannot be compressed"
        failure.do = "compression=None"
        raise failure
    tfds.features_from_schema(schema)
    tfds.build_label_files(schema)


def build_tfds_files(
    schema: Schema, name: str, version: str, splits: Mapping[str, tuple[Sequence[int], int]]
) -> dict[str, bytes]:
    """The files by name. `splits` has, per split, the records of every shard and the total payload bytes."""
    check_tfds(schema, name, version, list(splits))
    return {
        INFO_NAME: _to_json(tfds.build_dataset_info(name, version, splits)),
        FEATURES_NAME: _to_json(tfds.features_from_schema(schema)),
        **tfds.build_label_files(schema),
    }


def _to_json(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=4, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _invalid_name_error(what: str, value: object, example: str) -> RekordError:
    rule = {
        "name": "a letter, then letters, digits and `_`",
        "version": "three numbers separated by dots",
        "split": "letters, digits, `_` and `-`",
    }[what]
    return error(
        "U605",
        f"{preview(value)} is not a valid {what} of a TFDS dataset",
        expected=f"{rule}, such as {example}",
        found=preview(value),
        do=f"choose another {what}",
    )
