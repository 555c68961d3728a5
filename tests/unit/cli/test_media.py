"""Audio and video on the command line: folders without flags, frames by flags, and what is refused."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from PIL import Image

import rekord as rk
from rekord.cli.main import run_command_line

pytest.importorskip("soundfile")
pytest.importorskip("av")
from media_files import put_audio, put_video


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run_command_line([str(one) for one in arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_a_folder_of_wav_files_needs_no_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_audio(tmp_path / "data" / "a" / "1.wav")
    put_audio(tmp_path / "data" / "b" / "1.wav")
    code, out, _ = run(capsys, "write", tmp_path / "data", tmp_path / "out", "--json")
    document = json.loads(out)
    assert (code, document["source"], document["layout"]) == (0, "audio_folder", "table")
    assert rk.open(tmp_path / "out").records == 2
    code, out, _ = run(
        capsys, "write", tmp_path / "data", tmp_path / "mel", "--mono", "--resample", 8000, "--log-mel", 20
    )
    assert code == 0
    assert rk.open(tmp_path / "mel").schema["spectrogram"] == rk.Float32((None, 20))


def test_flags_choose_the_frames_of_videos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_video(tmp_path / "data" / "1.mp4", 10)
    flags = ("--fps", "5", "--clip-frames", 2, "--remainder", "drop", "--frames", "png", "--frame-size", "8x16")
    code, _, err = run(capsys, "write", tmp_path / "data", tmp_path / "out", *flags)
    assert code == 0, err
    rows = list(rk.open(tmp_path / "out")["train"])
    assert [(len(row["image"]), row["height"], row["width"], row["format"]) for row in rows] == [
        (2, 8, 16, "PNG")
    ] * 2
    code, out, _ = run(capsys, "infer", tmp_path / "data", "--every", 5)
    assert code == 0
    assert "'timestamp': rk.Int64" in out


@pytest.mark.parametrize(
    ("flags", "first"),
    [
        (("--fps", "fast"), "`--fps` cannot be 'fast'"),
        (("--fps", "0"), "`--fps`"),
        (("--frame-size", "8"), "`--frame-size` cannot be '8'"),
        (("--every", "2", "--fps", "2"), "`every` and `fps` cannot be combined"),
        (("--frames", "png"), "`--frames`"),
        (("--clip-frames", "0"), "`--clip-frames`"),
    ],
)
def test_wrong_flags_are_one_clear_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], first: str
) -> None:
    put_video(tmp_path / "data" / "1.mp4", 1)
    code, _, err = run(capsys, "write", tmp_path / "data", tmp_path / "out", *flags)
    assert code == 2
    assert err.splitlines()[0].startswith("UsageError U605: ")
    assert first in err.splitlines()[0]
    assert "\n  do  " in err


def test_flags_of_videos_do_not_apply_to_audio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_audio(tmp_path / "data" / "1.wav")
    code, _, err = run(capsys, "write", tmp_path / "data", tmp_path / "out", "--every", 2)
    assert code == 2
    assert "does not apply to source audio_folder" in err


def test_films_next_to_an_image_are_named_with_the_command_that_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("run/1.mp4", "run/2.mp4", "jump/3.mp4"):
        put_video(tmp_path / "in" / name, 2)
    Image.new("RGB", (8, 6)).save(tmp_path / "in/run/cover.png")
    assert run_command_line(["write", str(tmp_path / "in"), str(tmp_path / "out"), "--no-config"]) == 2
    command = f"rekord write {tmp_path / 'in'} --layout table OUT"
    assert f"do        {command}  # 3 video files" in capsys.readouterr().err
    arguments = [*shlex.split(command)[1:-1], str(tmp_path / "out"), "--no-config", "-q"]
    assert run_command_line(arguments) == 0
    assert rk.open(tmp_path / "out").records == 3
