"""Records dealt to other splits: by ratio, by group, by class, in folds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_conversions import read_tree

import rekord as rk
from rekord.dataset.manifest import read_manifest

SCHEMA = rk.Schema({"x": rk.Int64(), "who": rk.Text(), "label": rk.Label(3), "maybe": rk.Int64(optional=True)})
RATIOS = {"train": 0.8, "val": 0.2}


def rows_of(count):
    # Of the three classes one is rare.
    return [
        {"x": i, "who": f"p{i % 17}", "label": 2 if i % 20 == 0 else i % 2, "maybe": None if i == 3 else i}
        for i in range(count)
    ]


@pytest.fixture
def old(tmp_path):
    ratios = {"one": 0.5, "two": 0.5}
    return rk.write(rows_of(300), tmp_path / "in", schema=SCHEMA, split=ratios, shards=2, progress=False)


def resplit(*arguments, **options):
    return rk.split(*arguments, **options, progress=False)


def numbers(split):
    return [int(row["x"]) for row in split]


def all_numbers(dataset):
    return sorted(number for split in dataset.splits.values() for number in numbers(split))


def test_ratios_are_exact_and_every_record_is_in_one_split(old, tmp_path):
    new = resplit(tmp_path / "in", tmp_path / "out", split={"train": 0.7, "val": 0.2, "test": 0.1})
    assert {name: len(split) for name, split in new.splits.items()} == {"train": 210, "val": 60, "test": 30}
    assert all_numbers(new) == list(range(300))
    position = {number: i for i, number in enumerate(numbers(old["one"]) + numbers(old["two"]))}
    order = [position[number] for number in numbers(new["train"])]
    assert order == sorted(order)
    assert sorted(rk.records(tmp_path / "out")) == sorted(rk.records(tmp_path / "in"))
    manifest = read_manifest(str(tmp_path / "out"))
    assert manifest.options["verb"] == "split"
    assert manifest.parent is not None
    assert rk.check(tmp_path / "out").ok


def test_another_seed_deals_anew_and_the_same_one_as_before(old, tmp_path):
    made = [
        set(numbers(resplit(old, tmp_path / name, split=RATIOS, seed=seed)["val"]))
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert made[0] == made[1] != made[2]


def test_classes_have_exact_ratios(old, tmp_path):
    new = resplit(old, tmp_path / "out", split={"train": 0.75, "val": 0.25}, stratify="label")
    before = {}
    for row in rows_of(300):
        before[row["label"]] = before.get(row["label"], 0) + 1
    classes = {name: part.classes["label"] for name, part in read_manifest(str(tmp_path / "out")).splits.items()}
    for one, count in before.items():
        assert classes["train"][str(one)] + classes["val"][str(one)] == count
        assert abs(classes["train"][str(one)] - 0.75 * count) <= 1
    assert all_numbers(new) == list(range(300))


def test_groups_stay_together_and_where_writing_would_put_them(old, tmp_path):
    new = resplit(old, tmp_path / "out", split=RATIOS, split_by="who", seed=5)
    groups = {name: {row["who"] for row in split} for name, split in new.splits.items()}
    assert not groups["train"] & groups["val"]
    assert all(groups.values())
    written = rk.write(
        rows_of(300), tmp_path / "w", schema=SCHEMA, split=RATIOS, split_by="who", seed=5, progress=False
    )
    assert {name: sorted(numbers(split)) for name, split in new.splits.items()} == {
        name: sorted(numbers(split)) for name, split in written.splits.items()
    }


def test_a_dataset_with_a_key_is_split_by_it(tmp_path):
    rk.write(rows_of(200), tmp_path / "in", schema=SCHEMA, key="who", progress=False)
    new = resplit(tmp_path / "in", tmp_path / "out", split=RATIOS)
    written = rk.write(rows_of(200), tmp_path / "w", schema=SCHEMA, key="who", split=RATIOS, progress=False)
    assert sorted(numbers(new["val"])) == sorted(numbers(written["val"]))


@pytest.mark.parametrize("stratify", [None, "label"])
def test_folds_differ_by_one_record_at_the_most(tmp_path, stratify):
    rk.write(rows_of(103), tmp_path / "in", schema=SCHEMA, progress=False)
    new = resplit(tmp_path / "in", tmp_path / "out", folds=4, stratify=stratify)
    assert list(new.splits) == ["fold0", "fold1", "fold2", "fold3"]
    sizes = [len(split) for split in new.splits.values()]
    assert sum(sizes) == 103
    assert max(sizes) - min(sizes) <= 1
    assert all_numbers(new) == list(range(103))
    if stratify:
        for one in range(3):
            counts = [sum(row["label"] == one for row in split) for split in new.splits.values()]
            assert max(counts) - min(counts) <= 1


def test_folds_of_groups_keep_them_together(old, tmp_path):
    new = resplit(old, tmp_path / "out", folds=3, split_by="who")
    groups = [{row["who"] for row in split} for split in new.splits.values()]
    assert sum(map(len, groups)) == 17
    assert max(map(len, new.splits.values())) - min(map(len, new.splits.values())) <= 18  # one group


def test_folds_give_pairs_to_train_and_validate_with(old, tmp_path):
    new = resplit(old, tmp_path / "out", folds=3)
    pairs = rk.folds(new)
    assert len(pairs) == 3
    for i, (train, held_out) in enumerate(pairs):
        assert held_out.name == f"fold{i}"
        assert sorted(numbers(train) + numbers(held_out)) == list(range(300))
    with pytest.raises(rk.UsageError) as caught:
        rk.folds(old)
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U606",
        "dataset has no folds",
        old["one"].paths[0],
    )
    with pytest.raises(rk.UsageError) as refused:
        rk.folds(old["one"])
    assert refused.value.code == "U605"


def test_only_one_split_can_be_dealt(old, tmp_path):
    new = resplit(old, tmp_path / "out", split=RATIOS, only="two")
    assert all_numbers(new) == sorted(numbers(old["two"]))
    with pytest.raises(rk.DatasetError) as caught:
        resplit(old, tmp_path / "no", split=RATIOS, only="three")
    assert caught.value.code == "X506"


def test_one_worker_and_three_make_the_same_bytes(old, tmp_path):
    for workers in (1, 3):
        resplit(old, tmp_path / str(workers) / "data", folds=3, shuffle=True, shards=2, workers=workers)
    assert read_tree(tmp_path / "1" / "data") == read_tree(tmp_path / "3" / "data")


def test_a_column_from_records_deals_as_one_from_the_index(tmp_path):
    rk.write(rows_of(80), tmp_path / "in", schema=SCHEMA, index=["who"], progress=False)
    rk.write(rows_of(80), tmp_path / "bare", schema=SCHEMA, progress=False)
    one = resplit(tmp_path / "in", tmp_path / "one", split=RATIOS, split_by="who")
    two = resplit(tmp_path / "bare", tmp_path / "two", split=RATIOS, split_by="who")
    assert numbers(one["val"]) == numbers(two["val"])


def test_a_record_without_the_value_is_named(old, tmp_path):
    with pytest.raises(rk.EncodeError) as caught:
        resplit(old, tmp_path / "out", split=RATIOS, split_by="maybe")
    where = caught.value.location
    assert (caught.value.code, where.feature) == ("E381", "maybe")
    assert [row["x"] for row in rk.open(where.path, schema=SCHEMA)[:]][where.record] == 3
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "U605: `split` cannot be None"),
        ({"split": "train"}, "U605: `split` cannot be 'train'"),
        ({"split": {"train": 0.5}}, "U605: `split` cannot be {'train': 0.5}"),
        ({"split": RATIOS, "folds": 3}, "U605: `split` and `folds` cannot be combined"),
        ({"split": RATIOS, "split_by": "who", "stratify": "label"}, "U605: `split_by` cannot be 'who'"),
        ({"folds": 3, "split_by": "who", "stratify": "label"}, "U605: `split_by` and `stratify` cannot be combined"),
        ({"folds": 1}, "U605: `folds` cannot be 1"),
        ({"folds": 2, "seed": -1}, "U605: `seed` cannot be -1"),
    ],
    ids=str,
)
def test_what_cannot_be_asked_for_is_refused(old, tmp_path, options, code):
    with pytest.raises(rk.UsageError) as caught:
        resplit(old, tmp_path / "out", **options)
    assert str(caught.value).startswith(code)


def test_a_column_that_is_not_there_is_refused_with_its_near_miss(old, tmp_path):
    for options in ({"split": RATIOS, "stratify": "lable"}, {"folds": 2, "split_by": "lable"}):
        with pytest.raises(rk.SchemaError) as caught:
            resplit(old, tmp_path / "out", **options)
        assert (caught.value.code, caught.value.location.feature) == ("S116", "lable")
        assert caught.value.do == "did you mean `label`?"
    assert "`label`" in caught.value.do


@settings(max_examples=15, deadline=None)
@given(count=st.integers(1, 80), folds=st.integers(2, 7), seed=st.integers(0, 5), stratify=st.booleans())
def test_any_folds_are_a_partition_of_the_records(tmp_path_factory, count, folds, seed, stratify):
    folder = tmp_path_factory.mktemp("split")
    rk.write(rows_of(count), folder / "in", schema=SCHEMA, shards=2, progress=False)
    new = resplit(folder / "in", folder / "out", folds=folds, seed=seed, stratify="label" if stratify else None)
    assert all_numbers(new) == list(range(count))
    sizes = [len(split) for split in new.splits.values()]
    assert max(sizes) - min(sizes) <= 1
