"""`rk.doctor`: what is wrong with record files, why, and what to do."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from rekord.arguments import check_keywords
from rekord.errors import RekordError
from rekord.health.check.manifest import ManifestListing, read_manifest_listing
from rekord.health.check.run import iter_findings
from rekord.health.dataset_files import DatasetFiles, find_dataset_files, resolve_schema
from rekord.health.doctor import corruption, kinds, payloads, raw_tensors
from rekord.health.doctor import spec as spec_diagnoses
from rekord.health.doctor.diagnosis import Diagnoses, Diagnosis, sort_by_severity
from rekord.health.doctor.evidence import DoctorCase, FileEvidence
from rekord.health.doctor.spec import SpecCheck
from rekord.health.finding import Report
from rekord.health.key_columns import KeyedBatch
from rekord.health.scan import FileSummary
from rekord.schema import Schema
from rekord.schema.interop.spec_file import load_spec
from rekord.schema.interop.tf_spec import (
    FixedLenSequenceSpec,
    FixedLenSpec,
    RaggedSpec,
    SequenceSpec,
    SparseSpec,
    VarLenSpec,
    spec_from_schema,
)
from rekord.storage import raw_files
from rekord.storage.local import PathLike

_SPEC_CLASSES = (FixedLenSpec, VarLenSpec, FixedLenSequenceSpec, SparseSpec, RaggedSpec)


@check_keywords
def doctor(
    path: PathLike | Sequence[PathLike],
    *,
    schema: Schema | PathLike | None = None,
    spec: str | Mapping[str, object] | SequenceSpec | None = None,
) -> Diagnoses:
    """Read a file, folder or glob, and explain what is wrong with it; nothing is written.

    With a `spec` (`"FILE.py:NAME"`, or the dict itself) or a `schema` (or a schema file), the result also predicts
    for each feature whether TensorFlow will parse it or which error it will raise, and contains a spec that works.
    """
    loaded, wanted = resolve_schema(schema), resolve_spec(spec)
    place = find_dataset_files(path)
    shown = os.fspath(path) if isinstance(path, (str, os.PathLike)) else find_common_folder(place.paths)
    return diagnose_files(place, path=shown, schema=loaded, spec=wanted)


def find_common_folder(files: Sequence[str]) -> str:
    """The folder that contains all of several files."""
    return raw_files.commonpath([raw_files.abspath(path) for path in files])


def resolve_spec(spec: str | Mapping[str, object] | SequenceSpec | None) -> Any:
    """A spec as plain values: read from a Python file, or converted from TensorFlow objects."""
    if isinstance(spec, str):
        return load_spec(spec)
    if spec is None or isinstance(spec, SequenceSpec):
        return spec
    if all(isinstance(feature, _SPEC_CLASSES) for feature in spec.values()):
        return spec
    from rekord.schema.interop.tf_spec import spec_from_tf

    return spec_from_tf(spec)


def diagnose_files(
    place: DatasetFiles,
    *,
    path: str,
    schema: Schema | None = None,
    spec: Any = None,
    report: Report | None = None,
) -> Diagnoses:
    """Diagnose record files; `report` counts what was read."""
    report = Report() if report is None else report
    listing = place.listing or _find_listing(place)
    declared = place.schema if listing is None else listing.schema
    check = _build_spec_check(schema, spec)
    case = DoctorCase(
        path=path,
        schema=schema or declared,
        listed=place.schema,
        spec=None if check is None else check.spec,
        compression={} if listing is None else _list_compressions(listing),
        files=[FileEvidence(path) for path in place.paths],
    )
    # The dataset itself knows more about its own schema than what that declares.
    held = schema if place.schema is not None else case.schema
    with closing(iter_findings(place, report, held, observers=[_EvidenceObserver(case, check)])) as findings:
        for finding in findings:
            case.add(finding)
    return _build_diagnoses(case, check, report)


def _find_listing(place: DatasetFiles) -> ManifestListing | None:
    """The manifest of the dataset that an explicitly named file belongs to."""
    if not place.has_explicit_files or len(place.paths) != 1:
        return None
    found = read_manifest_listing(os.path.dirname(place.paths[0]))
    # `check` of the folder reports what is wrong with a manifest.
    return found if isinstance(found, ManifestListing) and found.split_of(place.paths[0]) is not None else None


def _list_compressions(listing: ManifestListing) -> dict[str, str]:
    return {shard: part.compression for name, part in listing.manifest.splits.items() for shard in part.names(name)}


class _EvidenceObserver:
    """Collects evidence while the files are checked."""

    def __init__(self, case: DoctorCase, check: SpecCheck | None) -> None:
        self._case = case
        self._check = check

    def update(self, batch: KeyedBatch) -> None:
        """Add some records."""
        self._case.profile.update(batch)
        self._case.raw.update(batch)
        if self._check is not None:
            self._check.update(batch)

    def end_file(self, end: FileSummary) -> None:
        """Record the number of records in a file."""
        self._case.get_file_evidence(end.path).records = end.records


def _build_spec_check(schema: Schema | None, spec: Any) -> SpecCheck | None:
    if spec is not None:
        return SpecCheck(spec)
    if schema is None:
        return None
    try:
        return SpecCheck(spec_from_schema(schema))
    except RekordError:
        return None  # a column that no tf.io feature reads: the schema rules check it


def _find_declared_keys(case: DoctorCase) -> frozenset[str]:
    """The keys stored as the kind the schema declares, which is therefore intended."""
    kinds_of = case.declared_kinds()
    profiles = (*case.profile.keys.values(), *case.profile.steps.values())
    return frozenset(each.key for each in profiles if list(each.kinds) == [kinds_of.get(each.key)])


def _build_diagnoses(case: DoctorCase, check: SpecCheck | None, report: Report) -> Diagnoses:
    known: list[Diagnosis] = [*corruption.diagnose_corruption(case), *payloads.diagnose_payloads(case)]
    settled, read = _find_declared_keys(case), frozenset[str]()
    if check is not None:
        known += spec_diagnoses.diagnose_spec(case, check)
        read = spec_diagnoses.list_settled_keys(check)
        settled |= read
    known += kinds.diagnose_kinds(case, settled)
    known += raw_tensors.diagnose_raw_tensors(case, settled)
    known += payloads.diagnose_color_masks(case)
    known += kinds.diagnose_labels(case)
    bulky = {each.feature for each in known if each.code in ("H827", "H828")}
    known += [each for each in raw_tensors.diagnose_bloat(case) if each.feature not in bulky]
    known = payloads.raise_severities(case, known)
    known += payloads.diagnose_repeats(case)
    known += payloads.diagnose_other_findings(case, known, read)
    seen = check is not None and bool(case.profile.records)
    return Diagnoses(
        diagnoses=sort_by_severity(known),
        files=report.files,
        records=report.records,
        unreadable=report.unreadable,
        features=tuple(spec_diagnoses.predict_features(case, check)) if check is not None and seen else (),
        spec=spec_diagnoses.build_working_spec(case, check) if check is not None and seen else None,
    )
