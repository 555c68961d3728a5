"""What a verb says of a dataset that it wrote, or would write: what there is, what was refused, what comes next."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rekord.cli import out as output
from rekord.cli.render import byte_size, clean, count, cut, duration

if TYPE_CHECKING:
    from rekord.dataset.manifest import Manifest
    from rekord.engines.conversion import Outcome
    from rekord.verbs.forecast import Forecast


def report(
    place: str,
    outcome: Outcome,
    seconds: float,
    *,
    as_json: bool,
    also: Mapping[str, Any] | None = None,
) -> int:
    """Say what was written, and give the exit code. `also` goes into the JSON document."""
    if as_json:
        output.say_json({**_document(place, outcome, seconds), **(also or {})})
    else:
        _say_outcome(place, outcome, seconds)
    return 0


def report_forecast(place: str, expected: Forecast, *, as_json: bool) -> int:
    """Say what would be written, and give the exit code."""
    if as_json:
        output.say_json({"dataset": place, "dry_run": True, "forecast": expected.to_dict()})
    else:
        for line in expected.lines():
            output.say(clean(line))
        output.tell("nothing was written")
    return 0


def _document(place: str, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """The outcome as JSON holds it."""
    manifest = outcome.manifest
    return {
        "dataset": place,
        "splits": {
            name: {
                "records": split.records,
                "shards": len(split.shards.records),
                "bytes": sum(split.shards.bytes),
            }
            for name, split in manifest.splits.items()
        },
        "rejected": manifest.source.rejected,
        "rejects": _rejects_path(place, manifest),
        "resumed_shards": outcome.resumed_shards,
        "seconds": round(seconds, 3),
    }


def _say_outcome(place: str, outcome: Outcome, seconds: float) -> None:
    """The outcome as a person reads it."""
    manifest = outcome.manifest
    records = sum(split.records for split in manifest.splits.values())
    total_bytes = sum(sum(split.shards.bytes) for split in manifest.splits.values())
    head = f"{clean(place)}: {count(records, 'record')}, {byte_size(total_bytes)}"
    if outcome.nothing_to_do:
        output.say(f"nothing to do: {head}, complete already")
    else:
        resumed = (
            f", {count(outcome.resumed_shards, 'shard')} of an earlier run" if outcome.resumed_shards else ""
        )
        output.say(f"{head}, in {duration(seconds)}{resumed}")
    rows = [
        (clean(name), count(split.records, "record"), count(len(split.shards.records), "shard"))
        for name, split in manifest.splits.items()
    ]
    sizes = [byte_size(sum(split.shards.bytes)) for split in manifest.splits.values()]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for (name, number, shards), size in zip(rows, sizes, strict=True):
        output.say(f"  {name:<{widths[0]}}  {number:>{widths[1]}}  {shards:>{widths[2]}}  {size}")
    rejects = _rejects_path(place, manifest)
    if rejects is not None:
        output.say(f"rejected: {count(manifest.source.rejected, 'row')}, listed in {clean(rejects)}")
        _say_codes(rejects)
    if outcome.remarks is not None:
        output.say(f"remarks, listed in {clean(outcome.remarks)}")
        _say_codes(outcome.remarks)
    if outcome.left is not None:
        output.tell(f"files that rekord did not write were kept in {clean(outcome.left)}")
    output.say(f"next: rekord check {shlex.quote(clean(place))}")


def _rejects_path(place: str, manifest: Manifest) -> str | None:
    return os.path.join(place, ".rekord", "rejects.jsonl") if manifest.source.rejected else None


def _say_codes(path: str) -> None:
    """One line for each code of a list: how often, and where first."""
    counts: Counter[str] = Counter()
    first: dict[str, dict[str, Any]] = {}
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                document = json.loads(line)
                counts[document["code"]] += 1
                first.setdefault(document["code"], document)
    except (OSError, ValueError):
        return  # the list itself is what counts
    for code, number in counts.most_common():
        origin = first[code]["origin"].get("path") or ""
        where = f"   first: {clean(origin)}" if origin else ""
        output.say((f"  {code}", "bold"), f"  {number:,} ×  {cut(clean(first[code]['what']), 80)}{where}")
