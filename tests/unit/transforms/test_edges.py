"""Transforms at their edges: chains in chains, masks without images, hostile tokenizers, flags that are wrong."""

import io
import json
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image as Pillow
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import rekord as rk
from rekord.cli.main import run_command_line as main
from rekord.transforms import Bound, chain, decode, normalize, one_hot, resize, tokenize

TEXT = rk.Schema({"text": rk.Text()})
TEXTS = [{"text": "a b c"}, {"text": "b"}]
IMAGE = rk.Schema({"image": rk.Image()})
PIXELS = np.arange(60 * 80 * 3, dtype=np.uint32).astype(np.uint8).reshape(60, 80, 3)


def written(rows, place, schema, transforms, **options):
    return rk.write(rows, place, schema=schema, transforms=transforms, progress=False, **options)


# Chains.


def test_a_chain_within_a_chain_is_as_its_steps(tmp_path):
    nested = [chain(chain(resize(8, 9))), normalize()]
    dataset = written([{"image": PIXELS}], tmp_path / "out", IMAGE, nested)
    assert dataset.schema["image"].shape == (8, 9, 3)
    assert [step.name for step in dataset.transforms.steps] == ["resize", "normalize"]


def test_a_chain_within_a_chain_learns(tmp_path):
    dataset = written(TEXTS, tmp_path / "out", TEXT, [chain(tokenize("text"))])
    assert [row["text"].tolist() for row in dataset["train"]] == [[3, 2, 4], [2]]


@pytest.mark.parametrize("given", [5, "resize", {"resize": 3}])
def test_what_is_no_transform_is_refused(tmp_path, given):
    with pytest.raises(rk.UsageError) as caught:
        written(TEXTS, tmp_path / "out", TEXT, given)
    assert caught.value.code == "U605"


def test_a_class_of_transforms_is_no_transform(tmp_path):
    with pytest.raises(rk.UsageError) as caught:
        written(TEXTS, tmp_path / "out", TEXT, [Own])
    assert caught.value.code == "U605"


def test_a_transform_that_binds_to_nothing_is_refused(tmp_path):
    with pytest.raises(rk.UsageError) as caught:
        written(TEXTS, tmp_path / "out", TEXT, [Unbound()])
    assert (caught.value.code, caught.value.found) == ("U605", "None")


# Transforms of others.


@dataclass(frozen=True)
class Unbound:
    name: str = "unbound"

    def options(self):
        return {}

    def bind(self, before):
        return None


@dataclass(frozen=True)
class Own:
    made: object
    told: object = None
    name: str = "own"

    def options(self):
        return {"told": self.told}

    def bind(self, before):
        return Bound(before, self._row)

    def _row(self, row):
        if self.made is None:
            return row["no such key"]
        return self.made


@pytest.mark.parametrize(("made", "found"), [(None, "KeyError: 'no such key'"), (7, "7")])
def test_an_own_transform_that_fails_is_a_bad_row_when_writing_and_says_so_when_reading(tmp_path, made, found):
    with pytest.raises(rk.EncodeError) as caught:
        written(TEXTS, tmp_path / "out", TEXT, [Own(made)])
    assert (caught.value.code, caught.value.location.row) == ("E380", 0)
    assert "`own`" in caught.value.what
    assert caught.value.found == found
    split = written(TEXTS, tmp_path / "plain", TEXT, [])["train"]
    with pytest.raises(rk.EncodeError) as caught:
        next(iter(split.transform(Own(made)).batches(2)))
    assert (caught.value.code, caught.value.location.record) == ("E380", 0)


def test_options_that_no_manifest_can_hold_are_refused_before_rows_are_read(tmp_path):
    with pytest.raises(rk.UsageError) as caught:
        written(TEXTS, tmp_path / "out", TEXT, [Own({"text": "a"}, told=object())])
    assert caught.value.code == "U605"
    assert "`own`" in caught.value.what
    assert not (tmp_path / "out").exists()


@dataclass(frozen=True)
class Flat:
    name: str = "flat"

    def options(self):
        return {}

    def bind(self, before):
        return Bound(rk.Schema({"image": rk.Tensor("uint8", shape=(9,))}), self._row)

    def _row(self, row):
        return {"image": np.zeros(9, np.uint8)}


def test_a_forecast_takes_images_that_an_own_transform_made_tensors(tmp_path, capsys):
    rk.write([{"image": PIXELS}] * 3, tmp_path / "out", schema=IMAGE, transforms=Flat())
    assert "3 records" in capsys.readouterr().err


# Masks without their image.

OPTIONAL = rk.Schema({"image": rk.Image(optional=True), "mask": rk.Mask(classes=3, optional=True, ignore=255)})
IDS = (np.arange(60 * 80) % 3).astype(np.uint8).reshape(60, 80)


def test_a_mask_whose_image_is_missing_is_moved_all_the_same(tmp_path):
    rows = [{"image": PIXELS, "mask": IDS}, {"image": None, "mask": IDS}, {"image": None, "mask": None}]
    dataset = written(rows, tmp_path / "out", OPTIONAL, [resize(32, 32, fit="pad")])
    both, alone, neither = dataset["train"]
    assert alone["mask"] == both["mask"]
    assert Pillow.open(io.BytesIO(alone["mask"])).size == (32, 32)
    assert alone["image"] is None
    assert neither["mask"] is None


def test_a_mask_whose_image_is_missing_is_decoded_all_the_same(tmp_path):
    rows = [{"image": PIXELS, "mask": IDS}, {"image": None, "mask": IDS}]
    steps = [resize(32, 32), decode()]
    dataset = written(rows, tmp_path / "out", OPTIONAL, steps)
    both, alone = dataset["train"]
    assert np.array_equal(both["mask"], alone["mask"])
    assert alone["image"] is None
    read = written(rows, tmp_path / "plain", OPTIONAL, [])["train"].transform(*steps)
    assert np.array_equal(read[1]["mask"], alone["mask"])


def test_a_mask_that_is_too_small_for_its_crop_names_itself(tmp_path):
    with pytest.raises(rk.EncodeError) as caught:
        written([{"mask": IDS}], tmp_path / "out", OPTIONAL, [rk.transforms.crop(99, 99)])
    assert (caught.value.code, caught.value.location.feature) == ("E384", "mask")


# Tokenizers.


@pytest.fixture
def tokenizer(tmp_path):
    words = {"[UNK]": 0, "a": 1, "b": 2, "[CLS]": 3, "[SEP]": 4}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 3), ("[SEP]", 4)]
    )
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_a_length_that_what_the_tokenizer_adds_does_not_fit_into_is_refused(tmp_path, tokenizer):
    with pytest.raises(rk.UsageError) as caught:
        tokenize("text", tokenizer, max_length=1)
    assert (caught.value.code, caught.value.expected) == (
        "U605",
        "an integer ≥ 2: the tokenizer adds 2 ids to each text",
    )
    dataset = written(TEXTS, tmp_path / "out", TEXT, [tokenize("text", tokenizer, max_length=2)])
    assert [row["text"].tolist() for row in dataset["train"]] == [[3, 4], [3, 4]]


@pytest.mark.parametrize("said", [{"strategy": {"Fixed": 10**12}}, {"pad_to_multiple_of": 10**12}])
def test_a_tokenizer_that_fills_up_without_end_is_refused(tokenizer, said):
    document = json.loads(tokenizer.read_text())
    padding = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None}
    document["padding"] = {**padding, "pad_id": 0, "pad_type_id": 0, "pad_token": "[UNK]", **said}
    tokenizer.write_text(json.dumps(document))
    with pytest.raises(rk.UsageError) as caught:
        tokenize("text", tokenizer)
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U624",
        "tokenizer file cannot be used",
        str(tokenizer),
    )
    assert tokenize("text", tokenizer, max_length=4).max_length == 4  # which takes the place of its own filling


# Flags.


@pytest.mark.parametrize(
    ("flags", "what", "do"),
    [
        (["--resize", "0x0"], "`--resize` cannot be '0x0'", "--resize 224x224"),
        (["--crop", "5x99999"], "`--crop` cannot be '5x99999'", "--crop 224x224"),
        (
            ["--resize", "9x9", "--resize-fit", "cropp"],
            "`--resize-fit` cannot be 'cropp'",
            "--resize-fit crop",
        ),
        (["--encode", "jpeg:0"], "`--encode` cannot be 'jpeg:0'", "--encode jpeg:90"),
        (["--resize", "9x9", "--normalize", "--std", "0"], "`--std` cannot be '0'", "--std 0.5,0.5,0.5"),
        (["--bucketize", "age=5,1"], "`--bucketize` cannot be 'age=5,1'", "--bucketize age=18,65"),
        (["--cast", "age=foo"], "`--cast` cannot be 'age=foo'", "--cast price=float32"),
        (["--hash", "city=0"], "`--hash` cannot be 'city=0'", "--hash user=1000"),
        (["--one-hot", "=3"], "`--one-hot` cannot be '=3'", "--one-hot label=10"),
        (["--one-hot", "age=0"], "`--one-hot` cannot be 'age=0'", "--one-hot label=10"),
        (["--tokenize", "=words"], "`--tokenize` cannot be '=words'", "--tokenize text=words"),
        (["--tokenize", "city=letters"], "`--tokenize` cannot be 'city=letters'", "--tokenize text=words"),
    ],
)
def test_a_flag_that_is_refused_is_called_by_its_name(tmp_path, capsys, flags, what, do):
    (tmp_path / "people.csv").write_text("age,city\n17,rome\n")
    assert main(["write", str(tmp_path / "people.csv"), str(tmp_path / "out"), *flags]) == 2
    told = capsys.readouterr().err
    assert f"U605: {what}\n" in told
    assert f"do        {do}\n" in told


def test_whole_numbers_are_one_hot_with_a_number_of_classes(tmp_path, capsys):
    (tmp_path / "people.csv").write_text("age,label\n17,2\n18,0\n")
    arguments = ["write", str(tmp_path / "people.csv"), str(tmp_path / "out"), "--one-hot"]
    assert main([*arguments, "label"]) == 3
    assert "--one-hot label=10" in capsys.readouterr().err
    assert main([*arguments, "label=3"]) == 0
    assert [row["label"].tolist() for row in rk.open(tmp_path / "out")["train"]] == [[0, 0, 1], [1, 0, 0]]


def test_one_hot_of_numbers_says_what_it_needs():
    with pytest.raises(rk.SchemaError) as caught:
        one_hot("x").bind(rk.Schema({"x": rk.Int64()}))
    assert caught.value.code == "S142"
    assert "classes=10" in caught.value.do


def test_a_mean_that_is_called_imagenet_brings_its_deviation(tmp_path):
    Pillow.fromarray(PIXELS).save(tmp_path / "one.png")
    flags = ["--resize", "4x4", "--normalize", "--mean", "imagenet"]
    assert main(["write", str(tmp_path), str(tmp_path / "out"), *flags]) == 0
    assert rk.open(tmp_path / "out").transforms.steps[1] == normalize("imagenet", "imagenet")


def test_means_may_be_an_array():
    assert normalize(np.array([0.5, 0.25]), np.array([1.0, 2.0])) == normalize((0.5, 0.25), (1.0, 2.0))


# Values.


def test_a_number_at_a_boundary_is_behind_it_in_every_float_type():
    for dtype in ("float16", "float32", "bfloat16"):
        bound = rk.transforms.bucketize("x", [0.1, 0.7]).bind(rk.Schema({"x": rk.Float32(dtype=dtype)}))
        assert [bound.apply({"x": x})["x"] for x in (0.0999, 0.1, 0.7)] == [
            0 if dtype != "bfloat16" else 1,
            1,
            2,
        ]


# Classes of transformed splits.


@pytest.mark.parametrize("verb", ["balanced", "class_weights"])
def test_classes_that_a_transform_changes_are_refused_and_others_are_not(tmp_path, verb):
    schema = rk.Schema({"x": rk.Int64(), "label": rk.Label(2)})
    rows = [{"x": x, "label": x % 2} for x in range(6)]
    split = written(rows, tmp_path / "out", schema, [])["train"]
    buckets = split.transform(rk.transforms.bucketize("x", [3]))
    with pytest.raises(rk.UsageError) as caught:
        getattr(buckets, verb)(by="x")
    assert str(caught.value).startswith(f"U667: `{verb}` counts the stored classes of `x`")
    with pytest.raises(rk.UsageError) as caught:
        getattr(split.transform(Own({"x": 1, "label": 0})), verb)(by="label")
    assert str(caught.value).startswith(f"U667: `{verb}` counts the stored classes of `label`")
    assert getattr(buckets, verb)(by="label") is not None


def test_a_balanced_split_can_be_transformed(tmp_path):
    schema = rk.Schema({"x": rk.Int64(), "label": rk.Label(2)})
    split = written([{"x": x, "label": x > 4} for x in range(6)], tmp_path / "out", schema, [])["train"]
    drawn = split.balanced(by="label").transform(rk.transforms.bucketize("x", [5]))
    assert sorted(next(iter(drawn.batches(6)))["x"].tolist()) == [0, 0, 0, 1, 1, 1]
