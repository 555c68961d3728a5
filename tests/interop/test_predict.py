"""A trained model predicts new files and rows as it did the records, and the code of its report runs as pasted."""

from __future__ import annotations

import io
import json
import os
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.training.result import TrainingResult

RNG = np.random.default_rng(0)
SPLIT = {"train": 0.8, "val": 0.2}


def picture(kind: str, size: tuple[int, int] = (24, 20)) -> Any:
    """Mostly red or mostly blue, with noise."""
    colour = (200, 40, 40) if kind == "red" else (40, 40, 200)
    return np.clip(RNG.normal(colour, 25, (size[1], size[0], 3)), 0, 255).astype(np.uint8)


def png(pixels: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def code_of(out: str) -> str:
    """The code in a report, as a reader copies it."""
    page = Path(out, "report.html").read_text()
    return unescape(page.split("<pre>")[1].split("</pre>")[0])


def run_pasted(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(compile(code, "report", "exec"), names)
    return names


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """Red and blue images; of those for validation, a few have the wrong label on purpose."""
    folder = tmp_path_factory.mktemp("images")
    rows = [{"image": png(picture(kind)), "label": kind, "name": kind} for kind in ("red", "blue") for _ in range(60)]
    schema = rk.Schema({"image": rk.Image(), "label": rk.Label(["red", "blue"]), "name": rk.Text()})
    rk.write(rows, folder / "train", schema=schema, split="train", shuffle=True, progress=False, workers=1)
    swapped = {"red": "blue", "blue": "red"}
    held = [
        {**row, "label": swapped[row["name"]] if i % 10 == 3 else row["label"]} for i, row in enumerate(rows[30:90])
    ]
    rk.write(held, folder / "val", schema=schema, split="val", progress=False, workers=1)
    for shard in (folder / "val").glob("*.tfrecord"):
        shutil.copy(shard, folder / "train" / shard.name)
    (folder / "train" / "rekord.json").unlink()
    shutil.rmtree(folder / "train" / ".rekord", ignore_errors=True)
    for index in (folder / "train").glob("*.index*"):
        index.unlink()
    rk.adopt(folder / "train", schema=schema)
    return rk.train(
        folder / "train", folder / "model", label="label", columns=["image"], epochs=4, learning_rate=0.01
    )


def test_mistakes_are_the_records_that_were_labelled_wrong(images: TrainingResult) -> None:
    wrong = {i for i in range(60) if i % 10 == 3}
    assert {one.record for one in images.mistakes} == wrong
    assert images.score == 54 / 60
    for one in images.mistakes:
        assert (one.true, one.predicted) == (("blue", "red") if one.record < 30 else ("red", "blue"))
        assert one.probability is not None
        assert 0.5 < one.probability <= 1
    ranked = [one.probability for one in images.mistakes]
    assert ranked == sorted(ranked, reverse=True), "the most confident one comes first"
    stored = json.loads(Path(images.out, "metrics.json").read_text())["mistakes"]
    assert [one["record"] for one in stored] == [one.record for one in images.mistakes]


def test_the_report_shows_the_mistakes(images: TrainingResult) -> None:
    page = Path(images.out, "report.html").read_text()
    assert "6 of 60 predictions on val are wrong. Shown are the 6 most confident ones." in page
    assert page.count("<img ") == 6
    assert len(page) < 200_000


def test_the_code_of_the_report_predicts_a_new_file(
    images: TrainingResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("red", "blue"):
        # Of another size than the images of the dataset.
        Image.fromarray(picture(kind, (90, 61))).save(tmp_path / "new.jpg", quality=90)
        found = run_pasted(code_of(images.out), tmp_path, monkeypatch)["prediction"]
        assert found.value == kind
        assert capsys.readouterr().out == f"{kind} {found.probability}\n"
        assert found.probabilities == pytest.approx({kind: found.probability, **_other(found)})


def _other(found: rk.Prediction) -> dict[str, float]:
    assert found.probabilities is not None
    return {name: share for name, share in found.probabilities.items() if name != found.value}


@pytest.fixture(scope="module")
def model(images: TrainingResult) -> rk.TrainedModel:
    return rk.load_model(images.out)


def test_a_file_its_bytes_its_pixels_and_a_row_are_the_same_item(model: rk.TrainedModel, tmp_path: Path) -> None:
    pixels = picture("red")
    (tmp_path / "a.png").write_bytes(png(pixels))
    items: list[Any] = [
        tmp_path / "a.png",
        os.fspath(tmp_path / "a.png"),
        png(pixels),
        pixels,
        {"image": png(pixels)},
        {"image": pixels, "label": "blue", "name": "the other columns of a row are ignored"},
    ]
    found = model.predict(items)
    assert len({one.probability for one in found}) == 1
    assert {one.value for one in found} == {"red"}
    assert model.predict(items[0]).probability == pytest.approx(found[0].probability)
    assert (model.classes, model.inputs) == (("red", "blue"), ("image",))
    assert model.predict([]) == []


def test_records_are_predicted_as_in_training(images: TrainingResult, model: rk.TrainedModel) -> None:
    rows = list(rk.open(images.dataset)["val"])
    found = model.predict(rows, transformed=True)
    right = [model.classes[row["label"]] == one.value for row, one in zip(rows, found, strict=True)]
    assert sum(right) / len(right) == images.score
    for mistake in images.mistakes:
        assert found[mistake.record].value == mistake.predicted
        assert found[mistake.record].probability == pytest.approx(mistake.probability, abs=1e-5)


def test_what_cannot_be_predicted_says_why(model: rk.TrainedModel, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(png(picture("red"))[:200])
    with pytest.raises(rk.RekordError) as caught:
        model.predict(tmp_path / "bad.png")
    assert caught.value.location.path == os.fspath(tmp_path / "bad.png")
    assert caught.value.location.feature == "image"
    with pytest.raises(rk.RekordError) as caught:
        model.predict(tmp_path / "none.png")
    assert caught.value.location.path == os.fspath(tmp_path / "none.png")
    with pytest.raises(rk.EncodeError) as misspelt:
        model.predict({"imag": png(picture("red"))})
    assert misspelt.value.code == "E309"
    with pytest.raises(rk.UsageError) as number:
        model.predict(3)  # type: ignore[call-overload]
    assert number.value.code == "U605"


def test_a_folder_without_a_model_is_refused(images: TrainingResult, tmp_path: Path) -> None:
    with pytest.raises(rk.RekordError) as caught:
        rk.load_model(tmp_path)
    assert caught.value.location.path == os.fspath(tmp_path / "inputs.json")
    for data in (b"{", b"[]", b"{}", b'{"schema": 3, "transforms": [], "dataset": "", "other_columns": []}'):
        (tmp_path / "inputs.json").write_bytes(data)
        with pytest.raises(rk.RekordError) as caught:
            rk.load_model(tmp_path)
    shutil.copy(Path(images.out, "inputs.json"), tmp_path)
    (tmp_path / "model.keras").write_bytes(b"no zip file")
    with pytest.raises(rk.DatasetError) as broken:
        rk.load_model(tmp_path)
    assert broken.value.code == "X575"
    assert broken.value.location.path == os.fspath(tmp_path / "model.keras")


def test_masks_are_predicted_in_the_size_of_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = []
    for i in range(40):
        image, mask = picture("blue", (32, 24)), np.zeros((24, 32), np.uint8)
        image[:, : 8 + i % 16], mask[:, : 8 + i % 16] = (200, 40, 40), 1
        if i % 4 == 1:
            mask[:, 8 + i % 16] = 1  # a truth that no model can see
        rows.append({"image": png(image), "mask": mask})
    schema = rk.Schema({"image": rk.Image(), "mask": rk.Mask(classes=2, ignore=255)})
    rk.write(rows, tmp_path / "data", schema=schema, split=SPLIT, progress=False, workers=1)
    done = rk.train(tmp_path / "data", tmp_path / "model", epochs=6, batch_size=8, learning_rate=0.01)
    assert done.score > 0.8
    ious = [one.iou for one in done.mistakes]
    assert ious == sorted(ious)  # type: ignore[type-var]
    page = Path(done.out, "report.html").read_text()
    assert 0 < len(ious) <= 12
    assert page.count("<img ") == 3 * len(ious)
    new = picture("blue", (64, 48))
    new[:, :40] = (200, 40, 40)
    Image.fromarray(new).save(tmp_path / "new.jpg", quality=95)
    found = run_pasted(code_of(done.out), tmp_path, monkeypatch)["prediction"]
    assert capsys.readouterr().out == "(48, 64) 1\n"
    expected = np.zeros((48, 64), np.uint8)
    expected[:, :40] = 1
    assert float((found.value == expected).mean()) > 0.85
    assert repr(found) == "Prediction(uint8 mask of 48 × 64 pixels)"


def test_new_rows_are_transformed_as_those_of_the_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {
            "area": float(50 + i % 150),
            "city": ["Rome", "Oslo"][i % 2],
            "price": 1000.0 * (50 + i % 150) + 20_000 * (i % 2),
        }
        for i in range(300)
    ]
    schema = rk.Schema({"area": rk.Float32(), "city": rk.Text(), "price": rk.Float32()})
    transforms = [rk.transforms.standardize("area")]
    rk.write(rows, tmp_path / "data", schema=schema, transforms=transforms, split=SPLIT, progress=False, workers=1)
    done = rk.train(tmp_path / "data", tmp_path / "model", label="price", epochs=8, learning_rate=0.01)
    model = rk.load_model(done.out)
    low, high = (found.value for found in model.predict([{"area": a, "city": "Rome"} for a in (60.0, 190.0)]))
    assert abs(low - 60_000) + abs(high - 190_000) < 40_000
    stored = rk.open(tmp_path / "data")["val"][0]
    again = model.predict(stored, transformed=True).value
    assert again != pytest.approx(model.predict(stored).value), "a stored row is not transformed twice"
    found = run_pasted(code_of(done.out), tmp_path, monkeypatch)["prediction"]
    assert capsys.readouterr().out == f"{found.value}\n"
    assert found.value == pytest.approx(again, rel=1e-3)
    worst = done.mistakes[0]
    assert abs(float(worst.true or 0) - float(worst.predicted or 0)) >= done.score
    assert "with the largest errors" in Path(done.out, "report.html").read_text()


def test_new_images_are_resized_and_normalised_as_those_of_the_dataset(tmp_path: Path) -> None:
    rows = [{"image": png(picture(kind)), "label": kind} for kind in ("red", "blue") for _ in range(40)]
    schema = rk.Schema({"image": rk.Image(), "label": rk.Label(["red", "blue"])})
    steps = [rk.transforms.resize(16, 16), rk.transforms.normalize("imagenet")]
    rk.write(
        rows, tmp_path / "data", schema=schema, transforms=steps, split=SPLIT, shuffle=True, progress=False, workers=1
    )
    done = rk.train(tmp_path / "data", tmp_path / "model", epochs=4, learning_rate=0.01)
    Image.fromarray(picture("red", (50, 70))).save(tmp_path / "red.png")
    Image.fromarray(picture("blue", (50, 70))).save(tmp_path / "blue.png")
    found = rk.load_model(done.out).predict([tmp_path / "red.png", tmp_path / "blue.png"])
    assert [one.value for one in found] == ["red", "blue"]


def test_text_is_predicted_by_itself_and_the_code_has_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = ("great", "lovely", "good"), ("awful", "poor", "bad")
    rows = [
        {
            "text": f"a {word} film, the {i}th of {i * i} by {word[0]}. Someone",
            "label": "pos" if word in good else "neg",
        }
        for i in range(30)
        for word in (*good, *bad)
    ]
    schema = rk.Schema({"text": rk.Text(), "label": rk.Label(["neg", "pos"])})
    rk.write(rows, tmp_path / "data", schema=schema, split=SPLIT, progress=False, workers=1)
    done = rk.train(tmp_path / "data", tmp_path / "model", epochs=8, learning_rate=0.02)
    found = rk.load_model(done.out).predict(["a lovely story", "an awful story"])
    assert [one.value for one in found] == ["pos", "neg"]
    printed = run_pasted(code_of(done.out), tmp_path, monkeypatch)["prediction"]
    assert capsys.readouterr().out == f"{printed.value} {printed.probability}\n"
    assert "model.predict({'text': 'a " in code_of(done.out)
