"""`rk.check`: validation of everything in record files."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Protocol

from rekord.arguments import check_keywords
from rekord.dataset.read import group_shard_sets
from rekord.errors import RekordError
from rekord.health.check.duplicates import DuplicateContentRule
from rekord.health.check.float_integers import FloatIntegerRule
from rekord.health.check.images import BoxRule, ImageRule, find_declared_boxes, find_declared_images
from rekord.health.check.majority import MajorityRule, RecordPatterns, learn_patterns
from rekord.health.check.manifest import (
    ClassCountRule,
    FileDigests,
    IndexRule,
    find_manifest_mismatches,
    find_tfds_mismatches,
)
from rekord.health.check.privacy import PatientRule
from rekord.health.check.rule import CheckRule
from rekord.health.check.schema import SchemaRule
from rekord.health.check.shards import find_shard_problems
from rekord.health.dataset_files import DatasetFiles, SplitNumbering, find_dataset_files, resolve_schema
from rekord.health.finding import Finding, Report
from rekord.health.key_columns import KeyedBatch
from rekord.health.scan import OPAQUE_PAYLOAD_CODES, FileSummary, scan_file, scan_files
from rekord.schema import Schema
from rekord.storage import raw_files
from rekord.storage.local import PathLike
from rekord.storage.router import ROUTED_STORAGE

__all__ = ["RecordPatterns", "build_majority_rules", "build_schema_rules", "learn_patterns"]


def build_schema_rules(schema: Schema, *, tfds: bool = False) -> list[CheckRule]:
    """The rules for records with a schema; `tfds` if TFDS wrote it, which labels unknown classes -1."""
    rules: list[CheckRule] = [SchemaRule(schema, tfds=tfds)]
    images, boxes = find_declared_images(schema), find_declared_boxes(schema)
    if images:
        rules.append(ImageRule(lambda batch: images))
    if boxes:
        rules.append(BoxRule(lambda batch: boxes))
    return rules


def build_majority_rules(learnt: RecordPatterns) -> list[CheckRule]:
    """The rules for records without a schema: they should resemble most others."""
    return [MajorityRule(learnt), ImageRule(learnt.images), BoxRule(learnt.boxes)]


MAX_FINDINGS = 1000

_SAMPLED_FILES = 64
_SAMPLED_RECORDS = 4096
_SAMPLED_BYTES = 16 << 20
"""The sample that records without a schema are compared with: the fronts of files spread over all."""


class CheckObserver(Protocol):
    """Receives the records while files are checked."""

    def update(self, batch: KeyedBatch) -> None:
        """Some records of a file."""

    def end_file(self, end: FileSummary) -> None:
        """The end of a file."""


@check_keywords
def check(
    path: PathLike | Sequence[PathLike],
    schema: Schema | PathLike | None = None,
    *,
    max_findings: int | None = MAX_FINDINGS,
) -> Report:
    """Read every record of a file, folder or glob and report what is wrong with it.

    Checks lengths, checksums, compression and messages; that all shards exist and match their manifest; that each
    record matches the schema, and its images, masks and boxes are valid; and that nothing is duplicated, above all
    not in two splits. The default schema is that of the manifest; without a manifest, records are compared with
    what most of them have in common. Reading continues after damage at the next intact record. Findings beyond
    `max_findings` are counted, not listed.
    """
    report = Report()
    with closing(iter_findings(find_dataset_files(path), report, resolve_schema(schema))) as findings:
        for finding in findings:
            report.add(finding, max_findings)
    return report


def iter_findings(
    place: DatasetFiles,
    report: Report,
    schema: Schema | None = None,
    *,
    observers: Sequence[CheckObserver] = (),
) -> Generator[Finding, None, None]:
    """The findings, file by file and then about the whole dataset; `report` counts what was read.

    Observers receive the same records in the same pass.
    """
    numbers = SplitNumbering(place)
    with closing(_iter_findings(place, report, schema, observers, numbers)) as findings:
        for finding in findings:
            yield numbers.fill(finding)


def _iter_findings(
    place: DatasetFiles,
    report: Report,
    schema: Schema | None,
    observers: Sequence[CheckObserver],
    numbers: SplitNumbering,
) -> Generator[Finding, None, None]:
    yield from place.findings
    shards = _list_sharded_files(place)
    with ExitStack() as stack:
        digests = None if place.listing is None else stack.enter_context(FileDigests(place.listing))
        declared = place.schema if schema is None else schema
        rules = _build_rules(place, schema, stack)
        records: dict[str, int] = {}  # of files without damage
        payload_bytes: dict[str, int] = {}
        with closing(scan_files(place.paths, report, digests or ROUTED_STORAGE)) as items:
            for item in items:
                if isinstance(item, Finding):
                    if item.code in OPAQUE_PAYLOAD_CODES and declared is not None:
                        if declared.kind == "bytes":
                            continue  # any payload is valid
                        _mark_schema_conflict(item, declared)
                    # Empty shards are reported for their whole set.
                    if item.code != "H703" or item.path not in shards:
                        yield item
                elif isinstance(item, KeyedBatch):
                    for observer in observers:
                        observer.update(item)
                    for rule in rules:
                        yield from rule.update(item)
                else:
                    for rule in rules:
                        yield from rule.end_file(item.path)
                    for observer in observers:
                        observer.end_file(item)
                    numbers.end_file(item.path, item.records)
                    if not item.damaged:
                        records[item.path] = item.records
                        payload_bytes[item.path] = item.payload_bytes
                    if not item.damaged and digests is not None:
                        digests.add(item.path)
                del item  # the next batch may use its memory again
        for rule in rules:
            yield from rule.end()
        yield from _find_file_set_problems(place, records, payload_bytes, digests)


def _build_rules(place: DatasetFiles, schema: Schema | None, stack: ExitStack) -> list[CheckRule]:
    declared = place.schema if schema is None else schema
    rules: list[CheckRule]
    if declared is not None and declared.kind == "bytes":
        rules = []  # nothing is declared about raw payloads
    elif declared is not None:
        rules = build_schema_rules(declared, tfds=schema is None and place.tfds is not None)
    else:
        rules = build_majority_rules(learn_patterns(_iter_sample_batches(place.paths)))
    if declared is None or declared.kind != "bytes":
        rules.append(FloatIntegerRule(declared))
    if declared is None or declared.kind != "bytes":
        rules.append(PatientRule())
    same = DuplicateContentRule(
        place.split_of,
        declared,
        None if place.listing is None else place.listing.key,
        guessed_splits=not place.has_declared_splits,
    )
    stack.callback(same.close)
    rules.append(same)
    if place.listing is not None:
        rules.append(ClassCountRule(place.listing))
        rules.append(IndexRule(place.listing))
    if place.label_map is not None:
        rules.append(place.label_map)
    return rules


def _mark_schema_conflict(finding: Finding, schema: Schema) -> None:
    """Any payload is legal, but with a schema a different one is an error."""
    finding.severity = "error"
    finding.expected = f"tf.train.{'SequenceExample' if schema.is_sequence else 'Example'}, as declared in the schema"
    finding.do = "write the file again with the schema, or check it without one"


def _list_sharded_files(place: DatasetFiles) -> frozenset[str | None]:
    """The files that are checked as sets of shards."""
    if place.has_explicit_files:
        return frozenset()
    return frozenset(path for one in group_shard_sets(place.paths) if one.count > 1 for path in one.paths.values())


def _iter_sample_batches(paths: Sequence[str]) -> Iterator[KeyedBatch]:
    """Records from the fronts of files spread over the dataset."""
    step = -(-len(paths) // _SAMPLED_FILES)
    chosen = paths[:: max(step, 1)]
    for path in chosen:
        unused = Report()  # the main pass counts and reports
        enough = -(-_SAMPLED_RECORDS // len(chosen)), -(-_SAMPLED_BYTES // len(chosen))
        for item in scan_file(path, unused, enough=enough):
            if isinstance(item, KeyedBatch):
                yield item


def _find_file_set_problems(
    place: DatasetFiles, records: dict[str, int], payload_bytes: dict[str, int], digests: FileDigests | None
) -> Iterator[Finding]:
    """The findings about the files as a set."""
    if place.has_explicit_files:
        return
    listed = () if place.listing is None else place.listing.shards
    yield from find_shard_problems(place.paths, _get_file_sizes(place), records, listed=listed)
    if place.listing is not None and digests is not None:
        yield from find_manifest_mismatches(place.listing, place.paths, records, digests)
    elif place.folder is not None and all(one.severity == "note" for one in place.findings):
        yield from find_tfds_mismatches(place.folder, place.paths, records, payload_bytes)


def _get_file_sizes(place: DatasetFiles) -> dict[str, int]:
    if place.remote_sizes is not None:
        return {path: place.remote_sizes[raw_files.relpath(path, place.folder or "")] for path in place.paths}
    sizes = {}
    for path in place.paths:
        try:
            sizes[path] = raw_files.getsize(path)
        except (OSError, RekordError):
            continue  # unreadable, which was reported
    return sizes
