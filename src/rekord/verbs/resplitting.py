"""Other splits from what a person asks for: which record goes where is known before any is copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rekord.dataset.concat import concat
from rekord.dataset.order import checked_seed
from rekord.dataset.selection import all_numbers, selected
from rekord.dataset.split import Split
from rekord.engines.job import CutRule
from rekord.engines.splits import SplitRule, split_rule
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.refuse import shown
from rekord.verbs.dealing import Dealt, by_ratio, groups_in_folds, hashes_of, in_folds, strata_of
from rekord.verbs.prepare import byte_count, check_one_of, checked_out, checked_whole
from rekord.verbs.remaking import Old, check_apart, check_split, damage_told, opened
from rekord.verbs.rewrite_asked import Asked
from rekord.verbs.rewrite_copy import chosen_compression, copying
from rekord.verbs.rewriting import Rewrite, found_schema

_MOST_FOLDS = 1000
_EXAMPLE = 'split={"train": 0.8, "val": 0.2}'


def prepare_resplit(
    path: Any,
    out: Any,
    *,
    split: Mapping[str, float] | None,
    split_by: str | None,
    stratify: str | None,
    folds: int | None,
    only: str | None,
    shuffle: bool,
    seed: int,
    shard_size: str | int,
    shards: int | None,
    compression: str | None,
    format: str | None,
    workers: int | None,
    fresh: bool,
    storage: Any = None,
) -> Rewrite:
    """Everything that can be refused before a record is copied is refused here."""
    place = checked_out(out)
    check_one_of("format", format, (None, "tfds"))
    checked_seed("seed", seed)
    cut = CutRule(
        shard_bytes=byte_count(shard_size, name="shard_size"),
        shards=None if shards is None else checked_whole("shards", shards, least=1, most=99_999),
    )
    rule = _rule(split, split_by, stratify, folds)
    old = opened(path)
    check_apart(place, [old])
    whole = _whole(old, only)
    with damage_told([old]):
        if not len(whole):
            raise error(
                "X565",
                location=Location(path=old.name),
                expected="records to be split",
                found="none",
                do="look at the dataset: rekord show PATH",
            )
        schema = found_schema([old], {whole.name: whole}, None)
        dealt = _dealt(whole, old, rule, split_by, stratify, folds, seed)
    numbers = all_numbers(whole._all_ids())
    wanted = {name: selected(numbers[dealt == i]) for i, name in enumerate(rule.names)}
    asked = Asked(
        shard_size=shard_size,
        shards=shards,
        compression=chosen_compression(compression, whole.paths, format),
        shuffle=shuffle,
        seed=seed,
        format=format,
        workers=workers,
        fresh=fresh,
    )
    told = {
        "verb": "split",
        "split": {**rule.options(), "by": split_by, "stratify": stratify, "folds": folds, "only": only},
    }
    copy = copying([old], dict.fromkeys(rule.names, whole), wanted, place, schema, cut, asked, storage, told)
    return Rewrite(out=place, olds=[old], copy=copy)


def _rule(split: object, split_by: str | None, stratify: str | None, folds: int | None) -> SplitRule:
    """The names of the new splits, and their ratios."""
    if folds is None:
        if split is None or isinstance(split, str):
            raise _refused("split", split, "ratios by name, or folds=", _EXAMPLE)
        return split_rule(split, by=split_by, stratify=stratify, known=None)
    if split is not None:
        raise _refused("split", split, "either split= or folds=", "leave one of them out")
    count = checked_whole("folds", folds, least=2, most=_MOST_FOLDS)
    if split_by is not None and stratify is not None:
        raise _refused("split_by", split_by, "either split_by= or stratify=", "leave one of them out")
    return SplitRule(names=tuple([f"fold{i}" for i in range(count)]))


def _whole(old: Old, only: str | None) -> Split:
    """All records that are dealt, one behind another."""
    if only is not None:
        check_split(old, only, "--only ")
    parts = list(old.splits.values()) if only is None else [old.splits[only]]
    return concat(parts)


def _dealt(
    whole: Split,
    old: Old,
    rule: SplitRule,
    split_by: str | None,
    stratify: str | None,
    folds: int | None,
    seed: int,
) -> Dealt:
    key = old.passed_on().get("key") if stratify is None and folds is None else None
    by = split_by or (key if isinstance(key, str) and key in whole.schema.context else None)
    if folds is not None and split_by is not None:
        return groups_in_folds(hashes_of(whole, split_by, seed), folds)
    strata = None if stratify is None else strata_of(whole, stratify)
    if folds is not None:
        return in_folds(hashes_of(whole, None, seed), strata, folds)
    if by is not None:
        return rule.of_hashes(hashes_of(whole, by, seed)).astype(np.int32)
    return by_ratio(hashes_of(whole, None, seed), strata, rule)


def _refused(name: str, value: object, expected: str, do: str) -> RekordError:
    return error("U617", f"`{name}` cannot be {shown(value)}", expected=expected, found=shown(value), do=do)
