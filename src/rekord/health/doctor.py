"""`rk.doctor`: why these record files make trouble, how much of it, and what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from rekord.dataset.manifest import manifest_path, read_manifest
from rekord.dataset.read import record_files
from rekord.errors import RekordError
from rekord.health.ailments import (
    bloat,
    kinds,
    labels,
    others,
    payloads,
    pictures,
    raw_bytes,
)
from rekord.health.ailments import bytes as bytes_family
from rekord.health.ailments import spec as spec_family
from rekord.health.ailments.case import Case, FileFacts
from rekord.health.ailments.spec_look import SpecLook
from rekord.health.diagnosis import Diagnoses, Diagnosis, worst_first
from rekord.health.finding import Finding, Report
from rekord.health.keyed import KeyedBatch
from rekord.health.rule import Rule
from rekord.health.rules import learn, rules_for, rules_without
from rekord.health.rules.shards import shard_findings
from rekord.health.scan import scan_file
from rekord.schema import Schema
from rekord.schema.spec import (
    FixedLen,
    FixedLenSequence,
    RaggedSpec,
    SequenceSpec,
    SparseSpec,
    VarLen,
    spec_of_schema,
)
from rekord.schema.spec_file import load_spec
from rekord.storage.files import LOCAL

PathLike: TypeAlias = "str | os.PathLike[str]"

_SPEC_CLASSES = (FixedLen, VarLen, FixedLenSequence, SparseSpec, RaggedSpec)

_LEARNT_FILES = 16
"""So many files, spread over all of them, say what the records have in common where no schema does."""


def doctor(
    path: PathLike | Sequence[PathLike],
    *,
    schema: Schema | PathLike | None = None,
    spec: str | Mapping[str, Any] | SequenceSpec | None = None,
) -> Diagnoses:
    """Read a file, folder or glob, and explain what is wrong with it; nothing is written.

    With a `spec` (`"FILE.py:NAME"`, or the dict itself) or a `schema` (or the file of one) it also says of each
    feature whether TensorFlow will parse it, with the error that it will raise, and gives a spec that works.
    """
    files = record_files(path)
    asked = os.fspath(path) if isinstance(path, (str, os.PathLike)) else place_of_all(files)
    return doctor_files(files, asked=asked, schema=loaded_schema(schema), spec=loaded_spec(spec))


def place_of_all(files: Sequence[str]) -> str:
    """What stands for several files: the folder that holds all of them."""
    return os.path.commonpath([os.path.abspath(path) for path in files])


def loaded_schema(schema: Schema | PathLike | None) -> Schema | None:
    """A schema, or the one that a file holds."""
    return schema if schema is None or isinstance(schema, Schema) else Schema.load(schema)


def loaded_spec(spec: str | Mapping[str, Any] | SequenceSpec | None) -> Any:
    """A spec as plain values: read from the text of a Python file, or taken from TensorFlow's objects."""
    if isinstance(spec, str):
        return load_spec(spec)
    if spec is None or isinstance(spec, SequenceSpec):
        return spec
    if all(isinstance(feature, _SPEC_CLASSES) for feature in spec.values()):
        return spec
    from rekord.schema.tfspec import spec_from_tf

    return spec_from_tf(spec)


def doctor_files(
    files: Sequence[str],
    *,
    asked: str,
    schema: Schema | None = None,
    spec: Any = None,
    report: Report | None = None,
) -> Diagnoses:
    """The same for record files that have been found already; what was read is counted in `report`."""
    report = Report() if report is None else report
    declared, compression = _declared(asked)
    look = _spec_look(schema, spec)
    case = Case(
        asked=asked,
        schema=schema or declared,
        spec=None if look is None else look.spec,
        compression=compression,
    )
    rules = _rules(case.schema, files)
    for path in files:
        _read(path, case, look, rules, report)
    _end(case, files, rules, _sizes(files), declared is not None)
    return _concluded(case, look, report)


def _declared(asked: str) -> tuple[Schema | None, dict[str, str]]:
    """The schema of the dataset that a path belongs to, and the compression of its files, where a manifest says."""
    folder = asked if os.path.isdir(asked) else os.path.dirname(asked)
    if not os.path.isfile(manifest_path(folder)):
        return None, {}
    try:
        manifest = read_manifest(folder)
        schema = Schema.from_dict(manifest.schema)
    except RekordError:
        return None, {}  # `check` says what is wrong with it; the files speak for themselves
    compression = {
        shard: part.compression for name, part in manifest.splits.items() for shard in part.names(name)
    }
    return schema, compression


def _spec_look(schema: Schema | None, spec: Any) -> SpecLook | None:
    if spec is not None:
        return SpecLook(spec)
    if schema is None:
        return None
    try:
        return SpecLook(spec_of_schema(schema))
    except RekordError:
        return None  # a column that no tf.io feature reads: the rules of the schema judge it


def _rules(schema: Schema | None, files: Sequence[str]) -> list[Rule]:
    if schema is not None:
        return rules_for(schema)
    step = max(len(files) // _LEARNT_FILES, 1)
    return rules_without(learn(batch for path in files[::step] for batch in _first_batch(path)))


def _first_batch(path: str) -> Iterator[KeyedBatch]:
    for item in scan_file(path, Report()):
        if isinstance(item, KeyedBatch):
            yield item
            return


def _read(path: str, case: Case, look: SpecLook | None, rules: list[Rule], report: Report) -> None:
    facts = FileFacts(path)
    case.files.append(facts)
    before = report.records
    for item in scan_file(path, report):
        if isinstance(item, Finding):
            facts.add(item)
            continue
        case.profile.see(item)
        case.raw.see(item)
        if look is not None:
            look.see(item)
        for rule in rules:
            for finding in rule.see(item):
                facts.add(finding)
    for rule in rules:
        for finding in rule.end_file(path):
            facts.add(finding)
    facts.records = report.records - before


def _end(case: Case, files: Sequence[str], rules: list[Rule], sizes: dict[str, int], listed: bool) -> None:
    """What is said after the last file: of rules, and of the files as sets of shards."""
    by_path = {facts.path: facts for facts in case.files}
    last = [finding for rule in rules for finding in rule.end()]
    if os.path.isdir(case.asked):
        whole = {
            facts.path: facts.records
            for facts in case.files
            if not any(code[0] in "FCX" for code, _ in facts.groups)
        }
        last += shard_findings(files, sizes, whole, listed=files if listed else ())
        last += _not_there(case)
    for finding in last:
        facts = by_path.get(finding.path or "")
        if facts is None:  # about no file that was read: a set of shards, or one that is missing
            facts = by_path[finding.path or ""] = FileFacts(finding.path or case.asked)
            case.beside.append(facts)
        facts.add(finding)


def _not_there(case: Case) -> Iterator[Finding]:
    """Shards that the manifest lists, and the folder does not have."""
    missing = [name for name in case.compression if not os.path.exists(os.path.join(case.asked, name))]
    if missing:
        total = len(case.compression)
        yield Finding.of(
            "X505",
            "error",
            path=case.asked,
            message=f"{total - len(missing):,} of {total:,} shards of the manifest are here",
            found=f"no {missing[0]}"
            + (f", and {len(missing) - 1:,} more missing" if len(missing) > 1 else ""),
            do="fetch the missing files",
        )


def _sizes(files: Sequence[str]) -> dict[str, int]:
    sizes = {}
    for path in files:
        try:
            sizes[path] = LOCAL.stat(path).size_bytes
        except RekordError:
            continue  # the pass has said so
    return sizes


def _as_declared(case: Case) -> frozenset[str]:
    """The keys that are of the kind that a schema says: whoever declared it meant it."""
    kinds_of = {
        key: kind
        for column, feature in ({} if case.schema is None else case.schema.features).items()
        for key, kind in zip(feature.record_keys(column), feature.record_kinds(), strict=True)
    }
    profiles = (*case.profile.keys.values(), *case.profile.steps.values())
    return frozenset(each.key for each in profiles if list(each.kinds) == [kinds_of.get(each.key)])


def _concluded(case: Case, look: SpecLook | None, report: Report) -> Diagnoses:
    known: list[Diagnosis] = [*bytes_family.diagnose(case), *payloads.diagnose(case)]
    settled = _as_declared(case)
    if look is not None:
        known += spec_family.diagnose(case, look)
        settled |= spec_family.settled(look)
    known += kinds.diagnose(case, settled)
    known += raw_bytes.diagnose(case, settled)
    known += pictures.diagnose(case)
    known += labels.diagnose(case)
    bulky = {each.feature for each in known if each.code in ("H827", "H828")}
    known += [each for each in bloat.diagnose(case) if each.feature not in bulky]
    known += others.diagnose(case, known)
    seen = look is not None and bool(case.profile.records)
    return Diagnoses(
        diagnoses=worst_first(known),
        files=report.files,
        records=report.records,
        unreadable=report.unreadable,
        features=tuple(spec_family.parsed(case, look)) if look is not None and seen else (),
        spec=spec_family.working_spec(case, look) if look is not None and seen else None,
    )
