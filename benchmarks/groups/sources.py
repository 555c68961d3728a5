"""Sources of other formats than images and tables, compared with the libraries that read them."""

from __future__ import annotations

from collections.abc import Iterator

from floors import OURS
from measure import Settings
from raw_files import SCENE_FORMS, prepare_recordings, prepare_scenes
from results import Table
from workloads import WORKLOADS

from groups.compare import Measure, compare_rates, contender

TIFFFILE = "tifffile"


def read_tiff(settings: Settings) -> Iterator[Table]:
    workload = settings.sized(WORKLOADS["scenes"])
    prepare_scenes(workload)
    for form in SCENE_FORMS:
        yield compare_rates(
            f"Read TIFF, {form}",
            workload,
            [
                contender("rekord_source_peer", OURS, "scenes", form=form),
                contender("tifffile_peer", TIFFFILE, "scenes", form=form),
            ],
            settings,
            reference=TIFFFILE,
            unit="files/s",
            note=f"{workload.records:,} files of 512 × 512 pixels and 8 bands of uint16, read on one thread. rekord "
            "reads them as rows of its source, and checks their headers first.",
        )


def write_audio(settings: Settings) -> Iterator[Table]:
    workload = settings.sized(WORKLOADS["recordings"])
    prepare_recordings(workload)
    one = "rekord, 1 worker"
    spectrograms = {"resample": [16_000], "spectrogram": [400, 160]}
    for title, steps in (("unchanged", {}), ("spectrograms", spectrograms)):
        yield compare_rates(
            f"Write audio, {title}",
            workload,
            [
                contender("rekord_source_peer", one, "recordings", workers=1, transforms=steps),
                contender("rekord_source_peer", "rekord, 2 workers", "recordings", workers=2, transforms=steps),
            ],
            settings.at_most(3),
            reference=one,
            unit="files/s",
            note=f"{workload.records:,} WAV files of one second at 16 kHz, converted to local disk.",
        )


GROUPS: dict[str, Measure] = {"read_tiff": read_tiff, "write_audio": write_audio}
