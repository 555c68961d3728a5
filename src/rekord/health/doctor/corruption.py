"""Problems below the records: compression, damage, truncation, and files of other formats."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from rekord import _core
from rekord.codes import CODES
from rekord.dataset.read import infer_compression
from rekord.errors import RekordError
from rekord.framing.inflate import open_stream, read_head, sniff_compression
from rekord.health.doctor.diagnosis import Diagnosis, find_worst_severity
from rekord.health.doctor.evidence import DoctorCase, FileEvidence, tally_finding_groups
from rekord.health.finding import Finding
from rekord.report.formatting import format_byte_size, format_count
from rekord.storage.router import ROUTED_STORAGE

TFRECORD_HINT = " (Is this even a TFRecord file?)"
"""What TensorFlow adds if the first record cannot be read."""

_NOT_A_TFRECORD = f"corrupted record at 0{TFRECORD_HINT}"
_PLAIN_HEADER = "not compression: the file starts with a valid record header"


@dataclass(slots=True, kw_only=True)
class FileSymptom:
    """One symptom of one file."""

    code: str
    facts: FileEvidence
    findings: tuple[str, ...] = ()  # the codes it explains
    evidence: list[str] = field(default_factory=list)
    ruled_out: list[str] = field(default_factory=list)
    likely: str | None = None
    do: str
    tensorflow_error: str | None = None
    all_records: bool = False  # every record of the file is affected


def get_single_finding(facts: FileEvidence, code: str) -> Finding:
    group = facts.of(code)
    assert group is not None
    return group.first[0]


def get_file_size(path: str) -> int:
    return ROUTED_STORAGE.stat(path).size_bytes


def read_first_bytes(path: str) -> bytes:
    with ROUTED_STORAGE.open_read(path) as file:
        return read_head(file)


_BLOCKS = ((1 << 20, "1 MiB"), (1 << 16, "64 KiB"), (4096, "4 KiB"), (512, "512 bytes"))
_INSPECTED_BYTES = 1 << 20


def find_damage_symptoms(facts: FileEvidence, codes: set[str]) -> Iterator[FileSymptom]:
    """The symptoms of findings with these codes."""
    changed = tuple(code for code in ("F101", "F102") if code in codes)
    cut = next((code for code in ("F104", "F103", "C202") if code in codes), None)
    plain = sniff_compression(read_first_bytes(facts.path)) == "none"
    zeros = _measure_zero_tail(facts, plain) if "F101" in codes else None
    if zeros is not None:
        yield _diagnose_zeros(facts, zeros)
        changed = tuple(code for code in changed if _count_findings(facts, code) > (code == "F101"))
    if changed:
        yield _diagnose_changed_bytes(facts, changed, plain, codes)
    if cut is not None:
        yield _diagnose_truncation(facts, get_single_finding(facts, cut), plain)
    for code in ("C201", "C203", "C204"):
        if code in codes:
            yield _diagnose_broken_stream(facts, get_single_finding(facts, code))


def _count_findings(facts: FileEvidence, code: str) -> int:
    group = facts.of(code)
    return 0 if group is None else group.records


def _diagnose_zeros(facts: FileEvidence, zeros: int) -> FileSymptom:
    size = get_file_size(facts.path)
    return FileSymptom(
        code="H806",
        facts=facts,
        findings=("F101",),
        evidence=[
            f"the last {format_count(zeros, 'byte')} of {size:,} are zero",
            f"{format_count(facts.records, 'record')} before them are intact",
        ],
        ruled_out=[
            _PLAIN_HEADER
            if _core.header_agrees(read_first_bytes(facts.path))
            else "not compression: the file does not start like gzip or zlib"
        ],
        likely="the space was preallocated, and the writer or download ended before filling it",
        do="fetch or write the file again; `rekord salvage IN OUT` keeps the records before the zeros",
        tensorflow_error=_predict_tf_error("F101", size - zeros, True),
    )


def _diagnose_changed_bytes(
    facts: FileEvidence, codes: tuple[str, ...], plain: bool, all_codes: set[str]
) -> FileSymptom:
    groups = [group for code in codes if (group := facts.of(code)) is not None]
    finding = min((group.first[0] for group in groups), key=lambda each: each.offset or 0)
    part = "length" if finding.code == "F101" else "payload"
    total = sum(group.records for group in groups)
    offset = finding.offset or 0
    evidence = [
        f"record {finding.record or 0:,}, at byte {offset:,}: the checksum of its {part} does not match",
        f"{format_count(total, 'place')} in the file, {format_count(facts.records, 'record')} intact",
    ]
    if finding.likely is not None:
        evidence.append(finding.likely.partition(": ")[2])
    ruled_out = ["not truncation: intact records follow the damage"] * (finding.likely is not None)
    if plain and offset:
        ruled_out.append(_PLAIN_HEADER)
    elif not plain and not all_codes & {"C201", "C202", "C203", "C204"}:
        ruled_out.append(
            "not damage to the compressed file: its own checksum matches, so the bytes changed before compression"
        )
    zero = _measure_zero_run(facts.path, offset) if plain else 0
    if zero:
        evidence.append(f"a run of {format_count(zero, 'byte')} is zero there, as after a lost block")
    return FileSymptom(
        code="H804",
        facts=facts,
        findings=codes,
        evidence=evidence,
        ruled_out=ruled_out,
        likely="a block of the file was lost"
        if zero
        else "bytes changed in place: a bad disk, memory or transfer, or a program",
        do="copy the file again from its source; `rekord salvage IN OUT` keeps the intact records",
        tensorflow_error=_predict_tf_error(finding.code, offset, plain),
    )


def _diagnose_truncation(facts: FileEvidence, finding: Finding, plain: bool) -> FileSymptom:
    size = get_file_size(facts.path)
    block = next((name for block, name in _BLOCKS if size and size % block == 0), None)
    inside = "the compressed stream" if finding.code == "C202" else f"record {finding.record or 0:,}"
    left = finding.found or "the end of the file"
    evidence = [
        f"the file ends inside {inside}: {left}" if finding.code != "C202" else f"the file ends inside {inside}",
        f"{format_count(facts.records, 'record')} before it are intact",
    ]
    offset = finding.offset or 0
    if finding.code == "C202":
        error = _predict_truncated_stream_error(facts.path, offset)
    else:
        error = _predict_tf_error(finding.code, offset, plain)
    if error is None:
        evidence.append("TensorFlow treats this as the end of the file, without an error")
    unchanged = facts.records and not any(facts.of(code) for code in ("F101", "F102"))
    ruled_out = ["not changed bytes: all records up to the end are intact"] * bool(unchanged)
    if plain and facts.records:
        ruled_out.append(_PLAIN_HEADER)
    code = "H805"
    likely = "the writer was stopped before it closed the file"
    if block is not None:
        code = "H803"
        evidence.insert(1, f"its size, {size:,} bytes, is a multiple of {block}, as for an interrupted copy")
        likely = f"a copy or download stopped after {format_byte_size(size)}"
    else:
        evidence.insert(1, f"its size, {size:,} bytes, is not a multiple of 512 bytes")
    return FileSymptom(
        code=code,
        facts=facts,
        findings=(finding.code,),
        evidence=evidence,
        ruled_out=ruled_out,
        likely=likely,
        do=("copy the file again" if block is not None else "write the file again, and close the writer")
        + "; `rekord salvage IN OUT` keeps the records before it",
        tensorflow_error=error,
    )


def _diagnose_broken_stream(facts: FileEvidence, finding: Finding) -> FileSymptom:
    reason = "incorrect header check" if finding.code == "C203" else finding.found
    says = {
        "C201": f"the stream cannot be decompressed further: {finding.found}",
        "C203": f"the end of the stream is followed by {finding.found}",
        "C204": "the stream decompresses, but its final checksum does not match",
    }[finding.code]
    return FileSymptom(
        code="H809",
        facts=facts,
        findings=(finding.code,),
        evidence=[
            says,
            f"{format_count(facts.records, 'record')} before it were read, and their checksums match",
        ],
        ruled_out=["not the wrong compression: the stream starts correctly and contains records"]
        * bool(facts.records),
        likely="something was appended to the file" if finding.code == "C203" else "bytes of the file changed",
        do="copy the file again from its source; `rekord salvage IN OUT` keeps the records before the damage",
        tensorflow_error=f"inflate() failed with error -3: {reason}",
    )


def _predict_tf_error(code: str, offset: int, plain: bool) -> str | None:
    """The error of TFRecordDataset for a bad frame."""
    if code == "F101":
        return f"corrupted record at {offset}{TFRECORD_HINT if offset == 0 else ''}"
    if code == "F102":
        return f"corrupted record at {offset + 12}"
    if code == "F104":
        return f"truncated record at {offset}' failed with " + (
            "Read less bytes than requested" if plain else "EOF reached"
        )
    return None


def _predict_truncated_stream_error(path: str, offset: int) -> str | None:
    """The same for a truncated compressed stream, which TensorFlow notices only inside a payload."""
    with ROUTED_STORAGE.open_read(path) as file:
        stream, _ = open_stream(file, sized=True)
        buffer = memoryview(bytearray(_INSPECTED_BYTES))
        inflated = 0
        try:
            while step := stream.readinto(buffer):
                inflated += step
        except RekordError:
            pass  # the cut, or damage before it
    return _predict_tf_error("F104", offset, False) if inflated - offset >= _core.HEADER_BYTES else None


def _measure_zero_tail(facts: FileEvidence, plain: bool) -> int | None:
    """The number of zeros at the end of the file, if they start at an unreadable frame."""
    group = facts.of("F101")
    if not plain or group is None:
        return None
    for finding in group.first:
        offset, size = finding.offset or 0, get_file_size(facts.path)
        if size > offset and _measure_zero_run(facts.path, offset, whole=True) == size - offset:
            return size - offset
    return None


def _measure_zero_run(path: str, offset: int, *, whole: bool = False) -> int:
    """The number of zeros at a byte, or in a run of at least 512 in the 1 MiB after it."""
    with ROUTED_STORAGE.open_read(path) as file:
        file.seek(offset)
        if not whole:
            return _find_longest_zero_run(read_head(file, _INSPECTED_BYTES))
        run = 0
        while chunk := read_head(file, _INSPECTED_BYTES):
            if chunk.count(0) < len(chunk):
                return run + len(chunk) - len(chunk.lstrip(b"\0"))
            run += len(chunk)
        return run


def _find_longest_zero_run(data: bytes) -> int:
    """The length of the first run of at least 512 zeros; else 0."""
    begin = data.find(bytes(512))
    if begin < 0:
        return 0
    return len(data) - begin - len(data[begin:].lstrip(b"\0"))


_FOREIGN_CODES = ("F111", "F112", "F113", "F114", "F115", "F116", "F117", "F118", "F119", "F120")
_MAX_LISTED_FILES = 3

CORRUPTION_CODES = frozenset({
    "F101", "F102", "F103", "F104", "F110", "C201", "C202", "C203", "C204", "C205", "H701", "H702",
    *_FOREIGN_CODES,
})  # fmt: skip
"""The findings explained by this module."""


def diagnose_corruption(case: DoctorCase) -> Iterator[Diagnosis]:
    """One diagnosis per cause, for any number of files."""
    symptoms: dict[str, list[FileSymptom]] = {}
    for facts in case.files:
        for symptom in _find_symptoms(case, facts):
            symptoms.setdefault(symptom.code, []).append(symptom)
    for code, alike in symptoms.items():
        yield _build_diagnosis(case, code, alike)


def _build_diagnosis(case: DoctorCase, code: str, signs: list[FileSymptom]) -> Diagnosis:
    first = signs[0]
    groups = [group for sign in signs for each in sign.findings if (group := sign.facts.of(each)) is not None]
    tally = tally_finding_groups(groups)
    evidence = []
    for sign in signs[:_MAX_LISTED_FILES]:
        name = f"{os.path.basename(sign.facts.path)}: " if len(signs) > 1 else ""
        evidence += [f"{name}{line}" for line in sign.evidence]
    if len(signs) > 1:
        evidence.insert(0, f"{len(signs):,} of {len(case.files):,} files")
    records = sum(sign.facts.records for sign in signs) if first.all_records else tally.records
    ruled_out = [line for line in first.ruled_out if all(line in sign.ruled_out for sign in signs)]
    likely = first.likely if all(sign.likely == first.likely for sign in signs) else None
    return Diagnosis(
        code=code,
        severity=find_worst_severity(group.severity for group in groups),
        title=CODES[code],
        path=case.place(tally),
        files=tally.files,
        records_affected=records,
        records=tuple(place for place in tally.places if place.record is not None and not first.all_records),
        evidence=tuple(evidence),
        ruled_out=tuple(ruled_out),
        likely=likely,
        do=first.do,
        tensorflow_error=first.tensorflow_error,
    )


def _find_symptoms(case: DoctorCase, facts: FileEvidence) -> Iterator[FileSymptom]:
    codes = {code for code, *_ in facts.groups}
    if not codes & CORRUPTION_CODES:
        return
    if "H701" in codes or "H702" in codes:
        yield from _find_misnamed(case, facts)
    if "F110" in codes:
        yield FileSymptom(
            code="H807",
            facts=facts,
            findings=("F110",),
            all_records=True,
            evidence=[
                f"{format_count(get_file_size(facts.path), 'byte')} of text starting with `version https://git-lfs.github.com/spec/`"
            ],
            ruled_out=["not damage: the pointer is text, and the data was never fetched"],
            likely="the repository was cloned without Git LFS",
            do="git lfs pull      (in the repository of the file)",
            tensorflow_error=_NOT_A_TFRECORD,
        )
    if "C205" in codes:
        yield _diagnose_other_compression(facts, get_single_finding(facts, "C205"))
    for code in _FOREIGN_CODES:
        if code in codes:
            yield _diagnose_foreign_file(facts, get_single_finding(facts, code))
    try:
        yield from find_damage_symptoms(facts, codes)
    except RekordError:
        return  # the file disappeared after it was read, which was reported then


def _find_misnamed(case: DoctorCase, facts: FileEvidence) -> Iterator[FileSymptom]:
    if facts.of("H701") is not None:
        yield FileSymptom(
            code="H802",
            facts=facts,
            findings=("H701",),
            all_records=True,
            evidence=[
                f"the name indicates {infer_compression(facts.path)}",
                "the first 12 bytes are a valid uncompressed record header",
            ],
            ruled_out=["not damage: all records were read, and their checksums match"] * _is_undamaged(facts),
            likely="the file was decompressed but not renamed, or written uncompressed under this name",
            do='read it with compression_type="", or rename it without the compression suffix',
            tensorflow_error="inflate() failed with error -3: incorrect header check",
        )
        return
    found = get_single_finding(facts, "H702").found or "gzip"
    if case.compression.get(os.path.basename(facts.path)) == found:
        return  # as the manifest lists it
    if not facts.records:
        return  # no evidence of records inside
    marks = "1f 8b 08" if found == "gzip" else "a zlib header"
    yield FileSymptom(
        code="H801",
        facts=facts,
        findings=("H702",),
        all_records=True,
        evidence=[f"the file starts with {marks}, and contains records"],
        ruled_out=["not damage: all records were read, and their checksums match"] * _is_undamaged(facts),
        likely=f"it was written with {found.upper()}, but its name suggests an uncompressed file",
        do=f'tf.data.TFRecordDataset(files, compression_type="{found.upper()}")',
        tensorflow_error=_NOT_A_TFRECORD,
    )


def _is_undamaged(facts: FileEvidence) -> bool:
    return not any(code[0] in "FC" for code, *_ in facts.groups)


def _diagnose_foreign_file(facts: FileEvidence, finding: Finding) -> FileSymptom:
    known = finding.code != "F120"
    begin = f"its first bytes are those of {finding.found}" if known else "the file contains no records"
    return FileSymptom(
        code="H808",
        facts=facts,
        findings=(finding.code,),
        all_records=True,
        evidence=[
            begin,
            f"{format_count(get_file_size(facts.path), 'byte')} in total" if known else f"{finding.found}",
        ],
        ruled_out=["not gzip or zlib: the file does not start like either"]
        * (sniff_compression(read_first_bytes(facts.path)) == "none"),
        likely=f"{finding.found} was named or downloaded as a record file" if known else None,
        do=finding.do or "check which file this is",
        tensorflow_error=_NOT_A_TFRECORD if get_file_size(facts.path) >= 12 else None,
    )


def _diagnose_other_compression(facts: FileEvidence, finding: Finding) -> FileSymptom:
    return FileSymptom(
        code="H810",
        facts=facts,
        findings=("C205",),
        all_records=True,
        evidence=[f"its first bytes are those of {finding.found}"],
        likely="the whole file was compressed after it was written",
        do=finding.do or "decompress it",
        tensorflow_error=_NOT_A_TFRECORD,
    )
