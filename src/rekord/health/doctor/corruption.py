"""Problems below the records: compression, damage, truncation, and files that are something else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from rekord import _core
from rekord.dataset.read import infer_compression
from rekord.errors import RekordError
from rekord.framing.inflate import open_stream, read_head, sniff_compression
from rekord.health.doctor.diagnosis import Diagnosis, find_worst_severity
from rekord.health.doctor.evidence import DoctorCase, FileEvidence, tally_finding_groups
from rekord.health.finding import Finding
from rekord.report.formatting import format_byte_size, format_count
from rekord.storage.local import LOCAL

TFRECORD_HINT = " (Is this even a TFRecord file?)"
"""What TensorFlow adds where the very first record cannot be read."""


@dataclass(slots=True, kw_only=True)
class FileSymptom:
    """What one file shows."""

    code: str
    facts: FileEvidence
    findings: tuple[str, ...] = ()  # the codes that it explains
    evidence: list[str] = field(default_factory=list)
    ruled_out: list[str] = field(default_factory=list)
    likely: str | None = None
    do: str
    tensorflow_error: str | None = None
    all_records: bool = False  # every record of the file is affected, not those of the findings


def get_single_finding(facts: FileEvidence, code: str) -> Finding:
    group = facts.of(code)
    assert group is not None
    return group.first[0]


def get_file_size(path: str) -> int:
    return LOCAL.stat(path).size_bytes


def read_first_bytes(path: str) -> bytes:
    with LOCAL.open_read(path) as file:
        return read_head(file)


_BLOCKS = ((1 << 20, "1 MiB"), (1 << 16, "64 KiB"), (4096, "4 KiB"), (512, "512 bytes"))
_INSPECTED_BYTES = 1 << 20


def find_damage_symptoms(facts: FileEvidence, codes: set[str]) -> Iterator[FileSymptom]:
    """What happened to a file whose findings have these codes."""
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
            f"the last {format_count(zeros, 'byte')} of {size:,} are all zero",
            f"{format_count(facts.records, 'record')} before them are intact",
        ],
        ruled_out=[
            "not compression: the file begins with a valid record header"
            if _core.header_agrees(read_first_bytes(facts.path))
            else "not compression: the file does not begin as gzip or zlib do"
        ],
        likely="the space was reserved, and the writer or the download ended before it was filled",
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
    ruled_out = ["not a cut: the file goes on behind the damage with intact records"] * (finding.likely is not None)
    if plain and offset:
        ruled_out.append("not compression: the file begins with a valid record header")
    elif not plain and not all_codes & {"C201", "C202", "C203", "C204"}:
        ruled_out.append(
            "not the storage of the compressed file: its own checksum agrees, so the bytes were changed before"
        )
    zero = _measure_zero_run(facts.path, offset) if plain else 0
    if zero:
        evidence.append(f"{format_count(zero, 'byte')} in a row are zero there, as after a lost block")
    return FileSymptom(
        code="H804",
        facts=facts,
        findings=codes,
        evidence=evidence,
        ruled_out=ruled_out,
        likely="a block of the file was lost"
        if zero
        else "bytes were changed in place, by a bad disk, memory or transfer, or by a program",
        do="copy the file again from its origin; `rekord salvage IN OUT` keeps the intact records",
        tensorflow_error=_predict_tf_error(finding.code, offset, plain),
    )


def _diagnose_truncation(facts: FileEvidence, finding: Finding, plain: bool) -> FileSymptom:
    size = get_file_size(facts.path)
    block = next((name for block, name in _BLOCKS if size and size % block == 0), None)
    inside = "the compressed stream" if finding.code == "C202" else f"record {finding.record or 0:,}"
    left = finding.found or "the end of the file"
    evidence = [
        f"the file ends inside {inside}: {left}" if finding.code != "C202" else f"the file ends inside {inside}",
        f"{format_count(facts.records, 'record')} before that are intact",
    ]
    offset = finding.offset or 0
    if finding.code == "C202":
        error = _predict_truncated_stream_error(facts.path, offset)
    else:
        error = _predict_tf_error(finding.code, offset, plain)
    if error is None:
        evidence.append("TensorFlow takes this for the end of the file and says nothing")
    unchanged = facts.records and not any(facts.of(code) for code in ("F101", "F102"))
    ruled_out = ["not bytes changed in place: all records up to the end are intact"] * bool(unchanged)
    if plain and facts.records:
        ruled_out.append("not compression: the file begins with a valid record header")
    code = "H805"
    likely = "the program that wrote it was stopped before it closed the file"
    if block is not None:
        code = "H803"
        evidence.insert(1, f"its size, {size:,} bytes, is a whole multiple of {block}, as copies that stop are")
        likely = f"a copy or download stopped after {format_byte_size(size)}"
    else:
        evidence.insert(1, f"its size, {size:,} bytes, is no multiple of a block of 512 bytes")
    return FileSymptom(
        code=code,
        facts=facts,
        findings=(finding.code,),
        evidence=evidence,
        ruled_out=ruled_out,
        likely=likely,
        do=("copy the file again" if block is not None else "write the file again, and close the writer")
        + "; `rekord salvage IN OUT` keeps the records before the cut",
        tensorflow_error=error,
    )


def _diagnose_broken_stream(facts: FileEvidence, finding: Finding) -> FileSymptom:
    reason = "incorrect header check" if finding.code == "C203" else finding.found
    says = {
        "C201": f"the stream cannot be inflated further: {finding.found}",
        "C203": f"after the end of the stream come {finding.found}",
        "C204": "everything inflates, and the checksum at the end does not match",
    }[finding.code]
    return FileSymptom(
        code="H809",
        facts=facts,
        findings=(finding.code,),
        evidence=[
            says,
            f"{format_count(facts.records, 'record')} before that were read, and their checksums agree",
        ],
        ruled_out=["not the wrong compression: the stream begins as it should, and records are in it"]
        * bool(facts.records),
        likely="something was appended to the file" if finding.code == "C203" else "bytes of the file were changed",
        do="copy the file again from its origin; `rekord salvage IN OUT` keeps the records before the damage",
        tensorflow_error=f"inflate() failed with error -3: {reason}",
    )


def _predict_tf_error(code: str, offset: int, plain: bool) -> str | None:
    """What TFRecordDataset says where a frame is bad."""
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
    """The same where the compressed stream ends: TensorFlow notices only inside a payload."""
    with LOCAL.open_read(path) as file:
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
    """How many zeros the file ends in, where they begin at a frame that cannot be read."""
    group = facts.of("F101")
    if not plain or group is None:
        return None
    for finding in group.first:
        offset, size = finding.offset or 0, get_file_size(facts.path)
        if size > offset and _measure_zero_run(facts.path, offset, whole=True) == size - offset:
            return size - offset
    return None


def _measure_zero_run(path: str, offset: int, *, whole: bool = False) -> int:
    """How many zeros stand at a byte, or, of at least 512, in the 1 MiB behind it."""
    with LOCAL.open_read(path) as file:
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
    """The longest run of zeros, where it has at least 512 of them."""
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
"""The findings that this family explains."""

_TITLES = {
    "H801": "the file is compressed, and its name does not say so",
    "H802": "the name says compressed, and the file is not",
    "H803": "the copy of a file was cut off",
    "H804": "bytes were changed after writing",
    "H805": "the writer never finished the file",
    "H806": "the file ends in zeros that nobody wrote records to",
    "H807": "a Git LFS pointer stands where the file should be",
    "H808": "this is no record file",
    "H809": "the compressed data is damaged",
    "H810": "the file is compressed in a way that TensorFlow does not read",
}


def diagnose_corruption(case: DoctorCase) -> Iterator[Diagnosis]:
    """One diagnosis a cause, whatever the number of files that show it."""
    signs: dict[str, list[FileSymptom]] = {}
    for facts in case.files:
        for sign in _find_symptoms(case, facts):
            signs.setdefault(sign.code, []).append(sign)
    for code, alike in signs.items():
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
        title=_TITLES[code],
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
                f"{format_count(get_file_size(facts.path), 'byte')} of text that begin `version https://git-lfs.github.com/spec/`"
            ],
            ruled_out=["not damage: a pointer is text, and the data itself was never fetched"],
            likely="the repository was cloned without Git LFS",
            do="git lfs pull      (in the repository that the file came from)",
            tensorflow_error=f"corrupted record at 0{TFRECORD_HINT}",
        )
    if "C205" in codes:
        yield _diagnose_other_compression(facts, get_single_finding(facts, "C205"))
    for code in _FOREIGN_CODES:
        if code in codes:
            yield _diagnose_foreign_file(facts, get_single_finding(facts, code))
    try:
        yield from find_damage_symptoms(facts, codes)
    except RekordError:
        return  # the file went away since it was read, which was reported then


def _find_misnamed(case: DoctorCase, facts: FileEvidence) -> Iterator[FileSymptom]:
    if facts.of("H701") is not None:
        yield FileSymptom(
            code="H802",
            facts=facts,
            findings=("H701",),
            all_records=True,
            evidence=[
                f"the name says {infer_compression(facts.path)}",
                "the first 12 bytes are the valid header of a plain record",
            ],
            ruled_out=["not damage: every record was read and its checksums agree"] * _is_undamaged(facts),
            likely="it was unpacked without being renamed, or written without compression under such a name",
            do='read it with compression_type="", or give it a name that does not say so',
            tensorflow_error="inflate() failed with error -3: incorrect header check",
        )
        return
    found = get_single_finding(facts, "H702").found or "gzip"
    if case.compression.get(os.path.basename(facts.path)) == found:
        return  # the manifest beside it says so
    if not facts.records:
        return  # nothing says that records are inside
    marks = "1f 8b 08" if found == "gzip" else "a zlib header"
    yield FileSymptom(
        code="H801",
        facts=facts,
        findings=("H702",),
        all_records=True,
        evidence=[f"the file begins with {marks}, and the bytes inside are records"],
        ruled_out=["not damage: every record was read and its checksums agree"] * _is_undamaged(facts),
        likely=f"it was written with {found.upper()}, and is read as plain because of its name",
        do=f'tf.data.TFRecordDataset(files, compression_type="{found.upper()}")',
        tensorflow_error=f"corrupted record at 0{TFRECORD_HINT}",
    )


def _is_undamaged(facts: FileEvidence) -> bool:
    return not any(code[0] in "FC" for code, *_ in facts.groups)


def _diagnose_foreign_file(facts: FileEvidence, finding: Finding) -> FileSymptom:
    known = finding.code != "F120"
    begin = "nothing in the file is a record" if not known else f"its first bytes are those of {finding.found}"
    return FileSymptom(
        code="H808",
        facts=facts,
        findings=(finding.code,),
        all_records=True,
        evidence=[
            begin,
            f"{finding.found}" if not known else f"{format_count(get_file_size(facts.path), 'byte')} in all",
        ],
        ruled_out=["not gzip or zlib: the file does not begin as they do"]
        * (sniff_compression(read_first_bytes(facts.path)) == "none"),
        likely=f"{finding.found} was named or downloaded as a record file" if known else None,
        do=finding.do or "check which file this is",
        tensorflow_error=f"corrupted record at 0{TFRECORD_HINT}" if get_file_size(facts.path) >= 12 else None,
    )


def _diagnose_other_compression(facts: FileEvidence, finding: Finding) -> FileSymptom:
    return FileSymptom(
        code="H810",
        facts=facts,
        findings=("C205",),
        all_records=True,
        evidence=[f"its first bytes are those of {finding.found}"],
        likely="it was compressed as a whole after it was written",
        do=finding.do or "decompress it",
        tensorflow_error=f"corrupted record at 0{TFRECORD_HINT}",
    )
