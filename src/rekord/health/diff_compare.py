"""Two sides of a comparison read and matched: what `rk.diff` does once it knows the files."""

from __future__ import annotations

from collections.abc import Mapping

from rekord.errors import error
from rekord.health.diff_examples import Pair, examples, places_of
from rekord.health.diff_match import ByKey, match_content, match_keys
from rekord.health.diff_pass import Comparing, SideSeen
from rekord.health.diff_report import Diff, RecordDiff, SplitSide
from rekord.health.diff_schema import declared_diff, seen_diff
from rekord.health.diff_shift import shifts
from rekord.health.diff_sides import Side, listed_alike, split_pairs
from rekord.health.finding import Report
from rekord.health.stats.report import part_of
from rekord.schema import Schema
from rekord.schema.refuse import shown


def compare_sides(one: Side, other: Side, *, key: str | None, read: bool, report: Report) -> Diff:
    """What changed between two sides; `report` counts files, records and bytes while they are read."""
    _check_key(key)
    remarks: list[str] = []
    if not read and listed_alike(one, other):
        return _by_manifests(one, other)
    name = key
    if name is None:
        name = _common_key(one, other)
        if name is not None:
            remarks.append(f"records are matched by `{name}`, the key that both manifests name")
    keys = None if name is None else (_record_key(one.schema, name), _record_key(other.schema, name))
    pairs = split_pairs(one, other)
    with Comparing(keys, report) as comparing:
        for number, side in enumerate((one, other)):
            for names, split in pairs.items():
                in_side = names[number]
                if in_side is not None:
                    comparing.read(number, split, side.splits[in_side])
            comparing.end(number)
        return _compared(one, other, name, keys, pairs, comparing, remarks)


def _compared(
    one: Side,
    other: Side,
    key: str | None,
    keys: tuple[str, str] | None,
    pairs: Mapping[tuple[str | None, str | None], int],
    comparing: Comparing,
    remarks: list[str],
) -> Diff:
    seen = comparing.sides
    records = _records(comparing, keys)
    if one.schema is not None and other.schema is not None:
        schema = declared_diff(one.schema, other.schema)
    else:
        schema = seen_diff(
            *(part_of(name, side.statistics, None) for name, side in zip("AB", seen, strict=True))
        )
    a, b = (
        part_of(name, each.statistics, side.schema)
        for name, each, side in zip("AB", seen, (one, other), strict=True)
    )
    splits = _splits(one, other, pairs, seen)
    remarks += _remarks(pairs, splits, seen, records)
    return Diff(
        a=one.path,
        b=other.path,
        key=key,
        schema=schema,
        counts={
            name: {
                "records": each.records.total(),
                "files": len(side.files),
                "payload_bytes": each.payload_bytes,
            }
            for name, each, side in zip("ab", seen, (one, other), strict=True)
        },
        splits=splits,
        features={} if records.same else shifts(a, b, besides=keys or ()),
        records=records,
        remarks=remarks,
        findings=[*one.findings, *other.findings, *seen[0].findings, *seen[1].findings],
        not_listed=seen[0].not_listed + seen[1].not_listed,
        unreadable=seen[0].unreadable + seen[1].unreadable,
    )


def _records(comparing: Comparing, keys: tuple[str, str] | None) -> RecordDiff:
    content = match_content(comparing.content)
    by_key = ByKey()
    if comparing.keyed is not None:
        by_key = match_keys(comparing.keyed, comparing.prints)
    # A key is part of what its record holds: a changed record is one that went and one that came.
    added, removed = content.added - by_key.changed, content.removed - by_key.changed
    places = content if keys is None else by_key
    shown_pairs: list[Pair] = [
        ("changed", places_of(ours, comparing.files)[0], places_of(theirs, comparing.files)[0])
        for ours, theirs in by_key.changed_places
    ]
    if removed:
        shown_pairs += [("removed", each, None) for each in places_of(places.removed_places, comparing.files)]
    if added:
        shown_pairs += [("added", None, each) for each in places_of(places.added_places, comparing.files)]
    features = {
        name: count
        for name, count in zip(comparing.features.names(), by_key.features.tolist(), strict=False)
        if count
    }
    return RecordDiff(
        added=added,
        removed=removed,
        changed=by_key.changed,
        moved=content.moved,
        features=dict(sorted(features.items(), key=lambda each: (-each[1], each[0]))),
        repeated_keys=(by_key.repeated_in_a, by_key.repeated_in_b),
        without_key=(comparing.sides[0].without_key, comparing.sides[1].without_key) if keys else (0, 0),
        examples=examples(shown_pairs, keys or (None, None)),
    )


def _splits(
    one: Side,
    other: Side,
    pairs: Mapping[tuple[str | None, str | None], int],
    seen: tuple[SideSeen, SideSeen],
) -> dict[str, tuple[SplitSide | None, SplitSide | None]]:
    found = {}
    for names, number in pairs.items():
        a, b = (
            None
            if name is None
            else SplitSide(
                records=each.records[number],
                files=len(side.splits[name]),
                compression=side.compression(name),
            )
            for name, side, each in zip(names, (one, other), seen, strict=True)
        )
        found[names[0] or names[1] or ""] = (a, b)
    return found


def _remarks(
    pairs: Mapping[tuple[str | None, str | None], int],
    splits: Mapping[str, tuple[SplitSide | None, SplitSide | None]],
    seen: tuple[SideSeen, SideSeen],
    records: RecordDiff,
) -> list[str]:
    remarks = []
    for names, number in pairs.items():
        name = names[0] or names[1] or ""
        if None not in names and names[0] != names[1]:
            remarks.append(f"the only split is named `{names[0]}` in A and `{names[1]}` in B")
        a, b = splits[name]
        if a is None or b is None:
            continue
        if a.files != b.files:
            remarks.append(f"`{name}` lies in {_files(a.files)} in A and in {_files(b.files)} in B")
        if a.compression != b.compression:
            remarks.append(f"`{name}` has compression {a.compression} in A and {b.compression} in B")
        # Behind damage the numbers of records are no places that could be compared.
        whole = not any(side.findings or side.unreadable for side in seen)
        if records.same and whole and seen[0].order[number] != seen[1].order[number]:
            remarks.append(f"the records of `{name}` are in another order")
    for letter, repeated in zip("AB", records.repeated_keys, strict=True):
        if repeated:
            remarks.append(
                f"repeated keys in {letter}: {repeated:,}; their records are matched by what they hold"
            )
    for letter, without, side in zip("AB", records.without_key, seen, strict=True):
        if without:
            remarks.append(f"records without the key in {letter}: {without:,}; matched by what they hold")
        if side.raw_files:
            remarks.append(f"files without Examples in {letter}: {side.raw_files:,}; compared byte by byte")
        if side.wide_records:
            remarks.append(
                f"records with too many keys (H727) in {letter}: {side.wide_records:,}; compared byte by byte"
            )
        if side.statistics.left_out:
            remarks.append(f"{letter} has so many keys that some are left out of the statistics")
    return remarks


def _files(number: int) -> str:
    return f"{number:,} file{'s' * (number != 1)}"


def _by_manifests(one: Side, other: Side) -> Diff:
    """The same, as far as two manifests and the sizes of their files can be believed."""
    assert one.manifest is not None
    assert one.schema is not None
    splits = {
        name: (SplitSide(records=part.records, files=len(part.shards.records), compression=part.compression),)
        * 2
        for name, part in one.manifest.splits.items()
    }
    counts = {
        "records": sum(part.records for part in one.manifest.splits.values()),
        "files": len(one.files),
        "payload_bytes": sum(part.payload_bytes for part in one.manifest.splits.values()),
    }
    return Diff(
        a=one.path,
        b=other.path,
        key=None,
        schema=declared_diff(one.schema, one.schema),
        counts={"a": counts, "b": counts},
        splits=splits,
        remarks=[
            "nothing was read: the manifests list the same checksums, and the files are as long as they say; "
            "`--read`, in Python read=True, compares the records themselves"
        ],
        by_manifests=True,
    )


def _common_key(one: Side, other: Side) -> str | None:
    """The key that both manifests name, where the records hold it in a form that tells them apart."""
    names = set()
    for side in (one, other):
        named = None if side.manifest is None else side.manifest.options.get("key")
        feature = (
            side.schema.context.get(named) if side.schema is not None and isinstance(named, str) else None
        )
        single = feature is not None and feature.shape == () and feature.kind in ("int64", "bytes")
        names.add(
            named if single and feature is not None and len(feature.record_keys(str(named))) == 1 else None
        )
    return names.pop() if len(names) == 1 else None


def _record_key(schema: Schema | None, name: str) -> str:
    """The record key of a column, or the name itself where it is no column."""
    feature = None if schema is None else schema.context.get(name)
    return name if feature is None else feature.record_keys(name)[0]


def _check_key(key: object) -> None:
    if key is not None and not (isinstance(key, str) and key):
        raise error(
            "U605",
            f"`key` cannot be {shown(key)}",
            expected="the name of a column or record key",
            found=shown(key),
            do='key="id"',
        )
