"""`rekord demo`."""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from faulty_storage import FaultyStorage
from PIL import Image

import rekord as rk
from rekord.cli import demo, demo_data
from rekord.cli.main import run_command_line
from rekord.errors import error

FEW_SCENES, FEW_SIGNS = 64, 16  # enough for a few records in each shard


@dataclass(frozen=True)
class Taken:
    """A tour that was taken, as it is for everybody but for the training."""

    place: Path
    exit_code: int
    said: str
    told: str

    def step(self, number: int) -> str:
        return re.split(r"^\d+\. ", self.said, flags=re.MULTILINE)[number]

    def records(self, name: str) -> Counter[bytes]:
        return Counter(rk.records(self.place / name))


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    place = tmp_path_factory.mktemp("tour") / "new" / "demo"
    said, told = io.StringIO(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(told):
        exit_code = run_command_line(["demo", str(place), "--no-train"])
    return Taken(place, exit_code, said.getvalue(), told.getvalue())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(demo, "SCENES", FEW_SCENES)
    monkeypatch.setattr(demo, "SIGNS", FEW_SIGNS)
    before = os.getcwd()
    yield
    assert os.getcwd() == before, "the tour does not stay where it was"


@pytest.mark.slow
def test_the_tour_ends_well_and_says_where_its_data_is(tour: Taken) -> None:
    assert tour.exit_code == 0, tour.told
    assert tour.said.splitlines()[-1].startswith("done in ")
    assert tour.said.endswith(f": the data is in {tour.place}\n")
    assert tour.step(1).splitlines()[1] == f"$ cd {tour.place}"


def test_the_steps_are_numbered_and_apart_and_fit_two_screens(tour: Taken) -> None:
    titles = re.findall(r"^(\d+)\. [A-Z].*$", tour.said, re.MULTILINE)
    assert titles == [str(number) for number in range(1, len(demo.STEPS) + 1)]
    assert "\n\n\n" not in tour.said
    assert "\x1b" not in tour.said + tour.told
    assert len(tour.said.splitlines()) < 100


def test_only_the_writing_says_something_on_stderr(tour: Taken) -> None:
    words = [line.split()[0] for line in tour.told.splitlines()]
    words = [word for word in words if word != "workers:"]  # a fast process may leave nothing for the other
    usual = ["forecast:", "largest", "reading", "writing"]
    assert words == ["source:", "guessed:", *usual, "source:", *usual]


def test_what_is_said_of_the_datasets_is_so(tour: Taken) -> None:
    deeplab, signs = rk.open(tour.place / "deeplab"), rk.open(tour.place / "signs-dataset")
    train, val = len(deeplab["train"]), len(deeplab["val"])
    assert (train + val, len(signs["train"]), len(signs["val"])) == (240, 480, 120)
    assert "deeplab: 240 records, " in tour.step(2)
    assert f"  train  {train} records  4 shards" in tour.step(2)
    assert f"  val     {val} records  4 shards" in tour.step(2)
    assert "$ rekord check deeplab\nall good · 8 files · 240 records · " in tour.step(3)
    assert "$ rekord stats deeplab\ndeeplab · 240 records · 8 features · 8 files · " in tour.step(3)
    assert "compared with train: " in tour.step(3)
    assert "  train  480 records  1 shard" in tour.step(4)
    for name in ("circle", "cross", "square", "stripes"):
        assert re.search(rf"^  {name} +█+ +150 +25%$", tour.step(4), re.MULTILINE)
    labels = np.concatenate([batch["label"] for batch in signs["val"].batches(50, columns=["label"])])
    assert np.bincount(labels).tolist() == [30, 30, 30, 30]


def test_the_commands_of_the_tour_do_what_the_tour_did(
    tour: Taken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = tour.step(2).split("$ rekord ")[1].split("\ndeeplab:")[0].replace("\\\n", "")
    words = [str(tmp_path / "again") if word == "deeplab" else word for word in command.split()]
    words[words.index("--layout") + 1] = "deeplab"
    monkeypatch.chdir(tour.place)
    assert run_command_line(words) == 0
    assert Counter(rk.records(tmp_path / "again")) == tour.records("deeplab")


def test_the_copy_is_broken_in_the_ways_that_are_said(tour: Taken) -> None:
    good, broken = tour.place / "deeplab", tour.place / "broken"
    names = {path.name for path in good.glob("*.tfrecord")}
    assert {path.name for path in broken.iterdir()} == names
    changed = {name for name in names if (good / name).read_bytes() != (broken / name).read_bytes()}
    assert changed == {f"train-0000{number}-of-00004.tfrecord" for number in (1, 2, 3)}
    found = rk.check(broken).findings
    last = sum(1 for _ in rk.records(good / "train-00003-of-00004.tfrecord")) - 1
    damage = [(each.code, each.record) for each in found if each.code.startswith("F")]
    assert damage == [("F102", 7), ("F104", last)]
    floats = sum(1 for _ in rk.records(broken / "train-00002-of-00004.tfrecord"))
    assert f"wrote the heights of its {floats} records as floats" in tour.step(5)
    assert {each.feature for each in found if each.code == "H755"} == {"image/height"}


def test_what_the_doctor_says_is_what_he_finds(tour: Taken) -> None:
    told = tour.step(6)
    found = rk.doctor(tour.place / "broken")
    assert re.findall(r"^([A-Z]\d{3})  ", told, re.MULTILINE) == [each.code for each in found.diagnoses]
    assert [each.code for each in found.diagnoses] == ["H820", "H804", "H805"]
    for each in found.diagnoses:
        assert f"  {each.title}\n" in told
        assert f"  likely    {each.likely}\n" in told
        assert f"  do        {each.do}\n" in told
        assert each.tensorflow_error is None or f"  tf says   {each.tensorflow_error}\n" in told
    assert "evidence  " not in told
    assert f"\n3 errors · 8 files · {found.records} records · 1.3 MB\n" in told


def test_what_comes_back_is_what_was_written(tour: Taken) -> None:
    told = tour.step(7)
    written, salvaged, repaired = map(tour.records, ("deeplab", "salvaged", "repaired"))
    assert (written.total(), salvaged.total(), repaired.total()) == (240, 238, 238)
    assert repaired <= written
    assert not salvaged <= written  # the floats are intact, and wrong
    assert "kept 238 records · lost an unknown number · 2 gaps · wrote salvaged/\n" in told
    assert "238 of 238 records are byte-identical to the original, 2 are lost\n" in told


def test_the_epochs_that_are_shown_are_those_of_the_reader(tour: Taken) -> None:
    told = tour.step(8)
    train = rk.open(tour.place / "deeplab")["train"]
    for epoch in range(2):
        batches = train.batches(32, shuffle=True, seed=7, epoch=epoch, columns=["filename"])
        names = [name for batch in batches for name in batch["filename"].tolist()]
        assert f"epoch {epoch}: {', '.join(names[:3])}, … {len(train)} different ones of {len(train)}, " in told
    rest = len(train) - 96
    assert f"stopped after 96 records: resumed with the other {rest}, {rest} of them in the same order\n" in told


def test_the_masks_are_as_annotation_tools_write_them(tour: Taken) -> None:
    seen: Counter[int] = Counter()
    for path in sorted((tour.place / "scenes" / "masks").iterdir()):
        with Image.open(path) as mask, Image.open(tour.place / f"scenes/images/{path.stem}.jpg") as image:
            assert (mask.mode, image.format, mask.size) == ("P", "JPEG", image.size)
            seen.update(np.asarray(mask).ravel().tolist())
    assert set(seen) == {0, 1, 2, 3, 4, demo_data.IGNORED}
    assert len(demo_data.SCENE_CLASSES) == 5
    assert seen[0] > seen[demo_data.IGNORED]


def test_the_data_is_always_the_same(tour: Taken, tmp_path: Path) -> None:
    demo_data.draw_scenes(str(tmp_path / "scenes"), 3)
    demo_data.draw_objects(str(tmp_path / "signs"), 8)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3 * 2 + 8
    for path in files:
        assert path.read_bytes() == (tour.place / path.relative_to(tmp_path)).read_bytes()


@pytest.mark.usefixtures("small")
@pytest.mark.slow
def test_without_a_folder_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run_command_line(["demo", "--no-train"]) == 0
    assert list(tmp_path.iterdir()) == []
    said = capsys.readouterr().out
    assert "left out: --no-train\n" in said
    assert said.endswith(": the data was deleted; `rekord demo DIR` keeps it\n")


@pytest.fixture
def only_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rekord.cli.demo.STEPS", (demo.train_models,))


@pytest.mark.usefixtures("only_training")
def test_without_anything_to_train_with_the_tour_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load_keras() -> None:
        raise error("U602", "training needs tensorflow, which is not installed", do="pip install it")

    monkeypatch.setattr("rekord.training.model.load_keras", load_keras)
    assert run_command_line(["demo", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "\nleft out: training needs tensorflow, which is not installed\n  do        pip install it\n" in said


@pytest.mark.usefixtures("only_training")
def test_the_tour_trains_by_the_commands_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def train(path: str, *, epochs: int, image_size: str | None, batch_size: int) -> int:
        size = "" if image_size is None else f" --image-size {image_size} --batch-size {batch_size}"
        ran.append(f"$ rekord train {path} --epochs {epochs}{size}")
        return 0

    monkeypatch.setattr("rekord.training.model.load_keras", lambda: None)
    monkeypatch.setattr("rekord.cli.train.train", train)
    assert run_command_line(["demo", str(tmp_path)]) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("$ ")]
    assert len(ran) == 2
    assert shown == ran


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("exit_code", [1, 130])
def test_the_tour_ends_where_a_verb_fails_or_is_interrupted(
    exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(demo, "SCENES", 1)
    monkeypatch.setattr("rekord.cli.write.write", lambda *_, **__: exit_code)
    assert run_command_line(["demo"]) == exit_code
    printed = capsys.readouterr()
    assert "\n3. " not in printed.out
    assert list(tmp_path.iterdir()) == []
    if exit_code == 130:
        assert printed.err == "interrupted: the data was deleted; `rekord demo DIR` keeps it\n"


@pytest.mark.usefixtures("small")
def test_a_full_disk_is_said_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("rekord.storage.local.LOCAL", FaultyStorage(fail_at=20, fault="enospc"))
    assert run_command_line(["demo"]) == 3
    told = capsys.readouterr().err
    assert told.startswith("DatasetError X504: ")
    assert "No space left on device" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("taken", ["file", "folder"])
def test_a_place_that_is_taken_is_refused(taken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "place"
    inside = place if taken == "file" else place / "precious"
    inside.parent.mkdir(exist_ok=True)
    inside.write_text("mine")
    assert run_command_line(["demo", str(place)]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("UsageError U605: the demo needs an empty folder")
    assert f"where     {place}" in printed.err
    assert inside.read_text() == "mine"


@pytest.mark.usefixtures("small")
def test_an_empty_folder_is_taken_also_by_a_short_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    with monkeypatch.context() as inside:
        inside.chdir(tmp_path)
        assert run_command_line(["demo", "empty", "--no-train"]) == 0
    assert capsys.readouterr().out.endswith(": the data is in empty\n")
    assert rk.check(tmp_path / "empty" / "repaired").ok


def test_a_place_that_cannot_be_made_is_exit_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run_command_line(["demo", str(tmp_path / "file" / "below")]) == 3
    assert capsys.readouterr().err.startswith("DatasetError X504: ")
