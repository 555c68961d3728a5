"""Datasets of images with classes, and of images alone."""

from __future__ import annotations

import json
import pickle

import numpy as np

from raw_layouts import Tree, classification, images, raw_layout, segmentation, table

WNIDS = ("n01440764", "n01443537")
WNID_LABELS = {"n01440764": 3, "n01443537": 3}


def class_folders(t: Tree, root: str, classes: dict[str, int], name: str = "{0}_{1:04d}.jpg", start: int = 1) -> None:
    """A folder of images for each class."""
    for label, count in classes.items():
        for i in range(count):
            t.image(f"{root}{label}/{name.format(label.rpartition('/')[2], start + i)}", i)


@raw_layout(classification(5, {"ants": 3, "bees": 2}))
def image_folder(t: Tree) -> None:
    """Documentation of torchvision.datasets.ImageFolder: root/class/xxx.png."""
    class_folders(t, "", {"ants": 3, "bees": 2}, "{1}.png")


@raw_layout(classification({"train": 4, "val": 2}, {"ants": 3, "bees": 3}))
def hymenoptera(t: Tree) -> None:
    """PyTorch transfer-learning tutorial: hymenoptera_data/{train,val}/{ants,bees}."""
    class_folders(t, "hymenoptera_data/train/", {"ants": 2, "bees": 2}, "{1}_abc.jpg")
    class_folders(t, "hymenoptera_data/val/", {"ants": 1, "bees": 1}, "{1}_def.jpg")


@raw_layout(classification({"train": 4, "val": 2}, WNID_LABELS))
def imagenet_train_val(t: Tree) -> None:
    """torchvision.datasets.ImageNet after its archives are unpacked: {train,val}/wnid/*.JPEG."""
    for wnid in WNIDS:
        t.images(f"train/{wnid}/{wnid}_{{}}.JPEG", (10026, 10027))
        t.image(f"val/{wnid}/ILSVRC2012_val_00000{WNIDS.index(wnid) + 1:03d}.JPEG")


@raw_layout(classification({"train": 4, "val": 2}, WNID_LABELS, unused=("ILSVRC2012_devkit_t12",)), refusal=True)
def imagenet_with_devkit(t: Tree) -> None:
    """ImageNet's train and val folders next to the unpacked devkit (data/*.txt, *.mat), as its readme lists it."""
    imagenet_train_val(t)
    t.put("ILSVRC2012_devkit_t12/readme.txt", "The validation ground truth is in this kit.\n")
    t.put("ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt", "490\n361\n")
    t.mat("ILSVRC2012_devkit_t12/data/meta.mat", {"synsets": [[1, 2]]})


@raw_layout(classification(4, {"tench": 2, "goldfish": 2}), classification(4, {"0": 2, "1": 2}), refusal=True)
def imagenet_txt(t: Tree) -> None:
    """Datumaro's documentation of ImageNetTxt: images/, train.txt (path, id), synsets.txt."""
    t.images("images/{}.jpg", range(4))
    t.lines("train.txt", [f"{i}.jpg {i % 2}" for i in range(4)])
    t.lines("synsets.txt", ["tench", "goldfish"])


@raw_layout(classification({"train": 4, "val": 2}, WNID_LABELS), refusal=True)
def tiny_imagenet(t: Tree) -> None:
    """The archive tiny-imagenet-200:

    train/wnid/images/, val/val_annotations.txt, test/images, wnids.txt, words.txt.
    """
    root = "tiny-imagenet-200/"
    for wnid in WNIDS:
        t.images(f"{root}train/{wnid}/images/{wnid}_{{}}.JPEG", range(2))
        t.lines(f"{root}train/{wnid}/{wnid}_boxes.txt", [f"{wnid}_{i}.JPEG\t0\t1\t9\t8" for i in range(2)])
    t.images(root + "val/images/val_{}.JPEG", range(2))
    t.lines(root + "val/val_annotations.txt", [f"val_{i}.JPEG\t{WNIDS[i]}\t0\t1\t9\t8" for i in range(2)])
    t.images(root + "test/images/test_{}.JPEG", range(2))
    t.lines(root + "wnids.txt", WNIDS)
    t.lines(root + "words.txt", [f"{WNIDS[0]}\ttench", f"{WNIDS[1]}\tgoldfish"])


@raw_layout(classification({"train": 6, "test": 4}, {"airplane": 5, "automobile": 5}))
def cifar10_png(t: Tree) -> None:
    """CIFAR-10 as PNG folders (the fast.ai archive cifar10.tgz): train, test, labels.txt."""
    for split, count in (("train", 3), ("test", 2)):
        class_folders(t, f"cifar10/{split}/", {"airplane": count, "automobile": count}, "{1}_{0}.png")
    t.lines("cifar10/labels.txt", ["airplane", "automobile"])


@raw_layout()
def cifar10_batches(t: Tree) -> None:
    """The Python version on the CIFAR page: pickled data_batch_1…5, test_batch, batches.meta."""
    for name in ("data_batch_1", "data_batch_2", "test_batch"):
        batch = {b"data": np.zeros((2, 48), np.uint8).tobytes(), b"labels": [0, 1], b"batch_label": name.encode()}
        t.put(f"cifar-10-batches-py/{name}", pickle.dumps(batch))
    t.put("cifar-10-batches-py/batches.meta", pickle.dumps({b"label_names": [b"airplane", b"automobile"]}))
    t.put("cifar-10-batches-py/readme.html", "<html></html>")


@raw_layout()
def stl10_binary(t: Tree) -> None:
    """The STL-10 page: stl10_binary/{train_X.bin, train_y.bin, class_names.txt, fold_indices.txt}."""
    t.put("stl10_binary/train_X.bin", bytes(96))
    t.put("stl10_binary/train_y.bin", bytes([1, 2]))
    t.lines("stl10_binary/class_names.txt", ["airplane", "bird"])
    t.lines("stl10_binary/fold_indices.txt", ["0 1"])


@raw_layout(classification({"train": 8, "test": 4}, {str(digit): 3 for digit in range(4)}))
def mnist_png(t: Tree) -> None:
    """The archive mnist_png: {training,testing}/digit/number.png, greyscale."""
    for digit in range(4):
        t.images(f"mnist_png/training/{digit}/{{}}.png", (digit * 10, digit * 10 + 1), "L")
        t.images(f"mnist_png/testing/{digit}/{{}}.png", (digit * 10 + 2,), "L")


@raw_layout(classification({"train": 3, "test": 2}, {"0": 2, "1": 1, "2": 2}), refusal=True)
def mnist_idx(t: Tree) -> None:
    """The MNIST page: train-images-idx3-ubyte and three more, described there byte by byte."""
    for split, labels in (("train", [0, 1, 2]), ("t10k", [0, 2])):
        t.idx(f"{split}-images-idx3-ubyte", np.arange(len(labels) * 784).reshape(-1, 28, 28) % 251)
        t.idx(f"{split}-labels-idx1-ubyte", labels)


@raw_layout()
def svhn_mat(t: Tree) -> None:
    """The SVHN page, format 2: train_32x32.mat, test_32x32.mat."""
    t.mat("train_32x32.mat", {"X": np.zeros((4, 4)), "y": [[1], [10]]})
    t.mat("test_32x32.mat", {"X": np.zeros((4, 4)), "y": [[2]]})


@raw_layout()
def svhn_full(t: Tree) -> None:
    """The SVHN page, format 1: train/{1.png, …, digitStruct.mat, see_bboxes.m}; the boxes are in the .mat file."""
    for split in ("train", "test"):
        t.images(f"{split}/{{}}.png", range(1, 4))
        t.mat(f"{split}/digitStruct.mat", {"digitStruct": [[1, 2, 3]]})
        t.put(f"{split}/see_bboxes.m", "load digitStruct.mat\n")


GTSRB_LABELS = {"00000": 2, "00001": 2}


@raw_layout(classification(4, GTSRB_LABELS), classification(4, {"0": 2, "1": 2}), refusal=True)
def gtsrb(t: Tree) -> None:
    """torchvision.datasets.GTSRB: GTSRB/Training/class/*.ppm with GT-class.csv (;)."""
    for i, name in enumerate(GTSRB_LABELS):
        t.images(f"GTSRB/Training/{name}/00000_{{:05d}}.ppm", range(2))
        rows = [[f"00000_{n:05d}.ppm", 16 + n, 12 + n, 1, 2, 9, 8, i] for n in range(2)]
        head = ["Filename", "Width", "Height", "Roi.X1", "Roi.Y1", "Roi.X2", "Roi.Y2", "ClassId"]
        t.csv(f"GTSRB/Training/{name}/GT-{name}.csv", [head, *rows], ";")
    t.put("GTSRB/Readme-Images.txt", "German Traffic Sign Recognition Benchmark\n")


CUB = ("001.Black_footed_Albatross", "002.Laysan_Albatross")


@raw_layout(
    classification({"*": 4}, dict.fromkeys(CUB, 2)),
    classification({"*": 4}, {name[4:]: 2 for name in CUB}),
    refusal=True,
)
def cub_200_2011(t: Tree) -> None:
    """The README of CUB-200-2011:

    images/, images.txt, image_class_labels.txt, train_test_split.txt, bounding_boxes.txt.
    """
    root = "CUB_200_2011/"
    paths = [f"{name}/{name[4:]}_000{i}.jpg" for name in CUB for i in range(2)]
    for i, path in enumerate(paths):
        t.image(f"{root}images/{path}", i)
    t.lines(root + "images.txt", [f"{i + 1} {path}" for i, path in enumerate(paths)])
    t.lines(root + "image_class_labels.txt", [f"{i + 1} {i // 2 + 1}" for i in range(4)])
    t.lines(root + "train_test_split.txt", [f"{i + 1} {i % 2}" for i in range(4)])
    t.lines(root + "bounding_boxes.txt", [f"{i + 1} 1.0 2.0 8.0 6.0" for i in range(4)])
    t.lines(root + "classes.txt", [f"{i + 1} {name}" for i, name in enumerate(CUB)])
    t.lines(root + "attributes/image_attribute_labels.txt", ["1 1 0 3 27.7080"])
    t.lines(root + "parts/part_locs.txt", ["1 1 0.0 0.0 0"])
    t.put(root + "README", "Caltech-UCSD Birds-200-2011\n")


@raw_layout()
def stanford_cars(t: Tree) -> None:
    """torchvision.datasets.StanfordCars: cars_train/, cars_test/, devkit/*.mat."""
    t.images("cars_train/{:05d}.jpg", range(1, 4))
    t.images("cars_test/{:05d}.jpg", range(1, 3))
    for name in ("cars_meta", "cars_train_annos", "cars_test_annos"):
        t.mat(f"devkit/{name}.mat", {"annotations": [[1, 2, 9, 8, 1]]})
    t.put("devkit/README.txt", "The annotations are in .mat files.\n")


DOGS = ("n02085620-Chihuahua", "n02085782-Japanese_spaniel")


@raw_layout(classification(4, dict.fromkeys(DOGS, 2), unused=("Annotation",)), refusal=True)
def stanford_dogs(t: Tree) -> None:
    """The page of Stanford Dogs:

    Images/breed/*.jpg, Annotation/breed/* (VOC XML without an extension), lists in .mat.
    """
    for name in DOGS:
        for i in range(2):
            stem = f"{name}/{name.partition('-')[0]}_{i}"
            t.image(f"Images/{stem}.jpg", i)
            t.voc_xml(f"Annotation/{stem}", stem.rpartition("/")[2], [name.partition("-")[2]], i)
    t.mat("lists/train_list.mat", {"labels": [[1, 2]]})


@raw_layout()
def oxford_flowers_102(t: Tree) -> None:
    """torchvision.datasets.Flowers102: jpg/image_00001.jpg, imagelabels.mat, setid.mat."""
    t.images("flowers-102/jpg/image_{:05d}.jpg", range(1, 7))
    t.mat("flowers-102/imagelabels.mat", {"labels": [[1, 1, 1, 2, 2, 2]]})
    t.mat("flowers-102/setid.mat", {"trnid": [[1, 4]], "valid": [[2, 5]], "tstid": [[3, 6]]})


@raw_layout(classification(6, {"daisy": 2, "roses": 2, "tulips": 2}))
def flower_photos(t: Tree) -> None:
    """TensorFlow's image-loading tutorial: flower_photos/{daisy,…}/*.jpg and LICENSE.txt."""
    for i, name in enumerate(("daisy", "roses", "tulips")):
        t.images(f"flower_photos/{name}/10{i}{{}}_0c9a.jpg", (1, 2))
    t.put("flower_photos/LICENSE.txt", "All images are licensed under Creative Commons.\n")


PET_STEMS = ("Abyssinian_1", "Abyssinian_2", "beagle_1", "beagle_2")


@raw_layout(
    classification({"*": 4}, {"1": 2, "2": 2}),
    classification({"*": 4}, {"Abyssinian": 2, "beagle": 2}),
    segmentation({"*": 4}, "1 2 3", unused=("list.txt|*.txt", "xmls")),
    refusal=True,
)
def oxford_iiit_pet(t: Tree) -> None:
    """torchvision.datasets.OxfordIIITPet:

    images/, annotations/{list,trainval,test}.txt, trimaps/*.png, xmls/*.xml.
    """
    t.images("images/{}.jpg", PET_STEMS)
    t.masks("annotations/trimaps/{}.png", PET_STEMS, (1, 2, 3))
    rows = [f"{stem} {i // 2 + 1} {i // 2 + 1} 1" for i, stem in enumerate(PET_STEMS)]
    t.lines("annotations/list.txt", ["#Image CLASS-ID SPECIES BREED ID", *rows])
    t.lines("annotations/trainval.txt", rows[::2])
    t.lines("annotations/test.txt", rows[1::2])
    t.put("annotations/README", "The Oxford-IIIT Pet Dataset\n")
    t.voc_xml("annotations/xmls/Abyssinian_1.xml", "Abyssinian_1.jpg", ["cat"])


FOOD = {"apple_pie": 3, "waffles": 3}


@raw_layout(classification({"train": 4, "test": 2}, FOOD), classification(6, FOOD, unused=("meta",)), refusal=True)
def food_101(t: Tree) -> None:
    """torchvision.datasets.Food101:

    food-101/images/class/*.jpg, food-101/meta/{classes,labels,train,test}.txt, *.json.
    """
    stems = {name: [f"{name}/{i}100{j}" for j in range(3)] for i, name in enumerate(FOOD)}
    for paths in stems.values():
        t.images("food-101/images/{}.jpg", paths)
    for split, chosen in (("train", slice(2)), ("test", slice(2, 3))):
        t.json(f"food-101/meta/{split}.json", {name: paths[chosen] for name, paths in stems.items()})
        t.lines(f"food-101/meta/{split}.txt", [path for paths in stems.values() for path in paths[chosen]])
    t.lines("food-101/meta/classes.txt", FOOD)
    t.lines("food-101/meta/labels.txt", ["Apple pie", "Waffles"])
    t.put("food-101/README.txt", "Food-101\n")


CALTECH = {"BACKGROUND_Google": 2, "accordion": 2, "wild_cat": 2}


@raw_layout(classification(6, CALTECH))
def caltech_101(t: Tree) -> None:
    """The archive 101_ObjectCategories.tar.gz of Caltech-101."""
    class_folders(t, "101_ObjectCategories/", CALTECH, "image_{1:04d}.jpg")


@raw_layout(classification(6, CALTECH, unused=("Annotations",)), refusal=True)
def caltech_101_annotated(t: Tree) -> None:
    """torchvision.datasets.Caltech101: caltech101/{101_ObjectCategories,Annotations}; outlines are .mat files."""
    class_folders(t, "caltech101/101_ObjectCategories/", CALTECH, "image_{1:04d}.jpg")
    for name in ("accordion", "wild_cat"):
        for i in (1, 2):
            t.mat(f"caltech101/Annotations/{name}/annotation_{i:04d}.mat", {"box_coord": [[2, 8, 1, 9]]})


@raw_layout(classification(4, {"001.ak47": 2, "257.clutter": 2}))
def caltech_256(t: Tree) -> None:
    """torchvision.datasets.Caltech256: 256_ObjectCategories/001.ak47/001_0001.jpg."""
    for name in ("001.ak47", "257.clutter"):
        t.images(f"256_ObjectCategories/{name}/{name[:3]}_{{:04d}}.jpg", (1, 2))


@raw_layout(
    classification({"*": 6}, {"banded": 3, "zigzagged": 3}),
    refusal=True,
)
def dtd(t: Tree) -> None:
    """torchvision.datasets.DTD: dtd/images/class/*.jpg, dtd/labels/{train,val,test}1.txt, dtd/imdb/imdb.mat."""
    names = ("banded", "zigzagged")
    for name in names:
        t.images(f"dtd/dtd/images/{name}/{name}_{{:04d}}.jpg", (2, 4, 5))
    for split, number in (("train", 2), ("val", 4), ("test", 5)):
        t.lines(f"dtd/dtd/labels/{split}1.txt", [f"{name}/{name}_{number:04d}.jpg" for name in names])
    t.lines(
        "dtd/dtd/labels/labels_joint_anno.txt",
        ["banded/banded_0002.jpg banded lined", "zigzagged/zigzagged_0002.jpg zigzagged"],
    )
    t.mat("dtd/dtd/imdb/imdb.mat", {"images": [[1, 2]]})


SUN = ("a/abbey", "a/apartment_building/outdoor", "b/bathroom")


@raw_layout(
    classification(6, dict.fromkeys(SUN, 2)),
    classification(6, {f"/{name}": 2 for name in SUN}),
    classification(6, {name[2:]: 2 for name in SUN}),
    refusal=True,
)
def sun397(t: Tree) -> None:
    """torchvision.datasets.SUN397: SUN397/letter/class[/subclass]/*.jpg and ClassName.txt."""
    for name in SUN:
        t.images(f"SUN397/{name}/sun_a{{}}.jpg", "bc")
    t.lines("SUN397/ClassName.txt", [f"/{name}" for name in SUN])
    t.put("SUN397/README.txt", "SUN397\n")


@raw_layout(classification({"train": 4, "val": 2}, {"airfield": 3, "zen_garden": 3}))
def places365_folders(t: Tree) -> None:
    """The archive places365standard_easyformat: places365_standard/{train,val}/class/*.jpg, train.txt, val.txt."""
    for name in ("airfield", "zen_garden"):
        t.images(f"places365_standard/train/{name}/{{:08d}}.jpg", (1, 2))
        t.image(f"places365_standard/val/{name}/Places365_val_00000001.jpg")
    for split, names in (("train", ("00000001", "00000002")), ("val", ("Places365_val_00000001",))):
        paths = [f"{split}/{name}/{one}.jpg" for name in ("airfield", "zen_garden") for one in names]
        t.lines(f"places365_standard/{split}.txt", paths)


@raw_layout(
    classification({"train": 4, "val": 2}, {"/a/airfield": 3, "/z/zen_garden": 3}),
    classification({"train": 4, "val": 2}, {"0": 3, "1": 3}, unused=("categories_places365.txt",)),
    refusal=True,
)
def places365_lists(t: Tree) -> None:
    """torchvision.datasets.Places365:

    data_256_standard/letter/class/, val_256/, lists with ids, categories_places365.txt.
    """
    lines = []
    for i, name in enumerate(("a/airfield", "z/zen_garden")):
        t.images(f"data_256_standard/{name}/{{:08d}}.jpg", (1, 2))
        lines += [f"/{name}/{n:08d}.jpg {i}" for n in (1, 2)]
        t.image(f"val_256/Places365_val_0000000{i + 1}.jpg")
    t.lines("places365_train_standard.txt", lines)
    t.lines("places365_val.txt", [f"Places365_val_0000000{i + 1}.jpg {i}" for i in range(2)])
    t.lines("categories_places365.txt", ["/a/airfield 0", "/z/zen_garden 1"])


@raw_layout(table({"*": 4}, {"Smiling": "Int64|Label", "Male": "Int64|Label"}), refusal=True)
def celeba(t: Tree) -> None:
    """torchvision.datasets.CelebA:

    img_align_celeba/, list_attr_celeba.txt (count, names, rows), list_eval_partition.txt …
    """
    names = [f"{i:06d}.jpg" for i in range(1, 5)]
    for i, name in enumerate(names):
        t.image(f"celeba/img_align_celeba/{name}", i)
    attributes = [f"{name} -1  1" if i % 2 else f"{name}  1 -1" for i, name in enumerate(names)]
    t.lines("celeba/list_attr_celeba.txt", ["4", "Smiling Male ", *attributes])
    t.lines(
        "celeba/list_bbox_celeba.txt", ["4", "image_id x_1 y_1 width height", *[f"{name} 1 2 8 6" for name in names]]
    )
    t.lines("celeba/identity_CelebA.txt", [f"{name} {100 + i}" for i, name in enumerate(names)])
    t.lines("celeba/list_eval_partition.txt", [f"{name} {i // 2}" for i, name in enumerate(names)])


LFW = {"Aaron_Eckhart": 1, "Aaron_Peirsol": 3, "Zhu_Rongji": 2}


@raw_layout(classification(6, LFW))
def lfw_people(t: Tree) -> None:
    """The page of Labeled Faces in the Wild: lfw/person/person_0001.jpg."""
    class_folders(t, "lfw/", LFW)


@raw_layout(classification(6, LFW, unused=("pairs.txt",)), refusal=True)
def lfw_pairs(t: Tree) -> None:
    """torchvision.datasets.LFWPairs: lfw-py/lfw_funneled/person/*.jpg with pairs.txt and people.txt."""
    class_folders(t, "lfw-py/lfw_funneled/", LFW)
    t.lines("lfw-py/pairs.txt", ["10\t300", "Aaron_Peirsol\t1\t2", "Aaron_Eckhart\t1\tZhu_Rongji\t2"])
    t.lines("lfw-py/people.txt", ["2", "3", *[f"{name}\t{count}" for name, count in LFW.items()]])


@raw_layout(classification({"train": 4, "test": 2}, {"n000002": 2, "n000003": 2, "n000001": 2}), refusal=True)
def vggface2(t: Tree) -> None:
    """Datumaro's documentation of VGGFace2: {train,test}/identity/*.jpg, bb_landmark/loose_bb_*.csv, labels.txt."""
    for split, names in (("train", ("n000002", "n000003")), ("test", ("n000001",))):
        rows = []
        for name in names:
            t.images(f"{split}/{name}/{{:04d}}_01.jpg", (1, 2))
            rows += [[f"{name}/{i:04d}_01", 1, 2, 8, 6] for i in (1, 2)]
        t.csv(f"bb_landmark/loose_bb_{split}.csv", [["NAME_ID", "X", "Y", "W", "H"], *rows])


@raw_layout(images({"*": 7}), refusal=True)
def market_1501(t: Tree) -> None:
    """The readme of Market-1501:

    bounding_box_train/, bounding_box_test/, query/; identities are in the file names.
    """
    root = "Market-1501-v15.09.15/"
    for i, name in enumerate(("0002_c1s1_000451_03", "0002_c2s1_000301_01", "0007_c1s6_028546_01")):
        t.image(f"{root}bounding_box_train/{name}.jpg", i)
    for i, name in enumerate(("-1_c1s1_000401_03", "0001_c1s1_001051_00")):
        t.image(f"{root}bounding_box_test/{name}.jpg", i)
    t.images(root + "query/{}_c1s1_001051_00.jpg", ("0001", "0003"))
    t.put(root + "bounding_box_train/Thumbs.db", b"\xd0\xcf\x11\xe0")
    t.put(root + "readme.txt", "Market-1501\n")


@raw_layout(classification(4, {"Abstract_Expressionism": 2, "Ukiyo_e": 2}))
def wikiart(t: Tree) -> None:
    """WikiArt: wikiart/style/artist_title-year.jpg."""
    t.images("wikiart/Abstract_Expressionism/aaron-siskind_acolman-{}-1955.jpg", (1, 2))
    t.images("wikiart/Ukiyo_e/hiroshige_a-bridge-{}.jpg", (1, 2))


@raw_layout(classification({"train": 2, "val": 2}, {"Rosa canina": 2, "Apis mellifera": 2}), refusal=True)
def inaturalist_2019(t: Tree) -> None:
    """The iNaturalist 2019 competition:

    train_val2019/Plants/400/*.jpg, train2019.json, val2019.json (COCO without boxes).
    """
    for split, number in (("train", 0), ("val", 2)):
        files = [f"train_val2019/Plants/400/{number}a.jpg", f"train_val2019/Insects/12/{number}b.jpg"]
        for name in files:
            t.image(name)
        t.json(
            f"{split}2019.json",
            {
                "info": {"year": 2019},
                "images": [{"id": i, "file_name": name, "width": 16, "height": 12} for i, name in enumerate(files)],
                "categories": [{"id": 400, "name": "Rosa canina"}, {"id": 12, "name": "Apis mellifera"}],
                "annotations": [{"id": i, "image_id": i, "category_id": (400, 12)[i]} for i in range(2)],
                "licenses": [{"id": 1, "name": "CC", "url": ""}],
            },
        )


INAT = ("00000_Animalia_Annelida_Lumbricus_terrestris", "00001_Animalia_Annelida_Sabella_spallanzanii")


@raw_layout(classification(4, dict.fromkeys(INAT, 2)))
def inaturalist_2021_folders(t: Tree) -> None:
    """torchvision.datasets.INaturalist: 2021_train_mini/number_kingdom_…_species/*.jpg."""
    for i, name in enumerate(INAT):
        t.images(f"2021_train_mini/{name}/{i}{{}}-6f1a.jpg", ("0a", "0b"))


@raw_layout(
    classification({"train": 3, "test": 4}, {"good": 5, "broken_large": 2}, unused=("ground_truth",)), refusal=True
)
def mvtec_ad(t: Tree) -> None:
    """The page of MVTec AD:

    bottle/{train/good, test/defect, ground_truth/defect/000_mask.png}, license.txt, readme.txt.
    """
    t.images("bottle/train/good/{:03d}.png", range(3))
    t.images("bottle/test/good/{:03d}.png", range(2))
    t.images("bottle/test/broken_large/{:03d}.png", range(2))
    t.masks("bottle/ground_truth/broken_large/{:03d}_mask.png", range(2), (0, 255))
    t.put("bottle/license.txt", "CC BY-NC-SA\n")
    t.put("bottle/readme.txt", "MVTec AD\n")


@raw_layout(classification(6, {"AnnualCrop": 2, "Forest": 2, "SeaLake": 2}))
def eurosat(t: Tree) -> None:
    """torchvision.datasets.EuroSAT: eurosat/2750/class/class_1.jpg."""
    class_folders(t, "eurosat/2750/", {"AnnualCrop": 2, "Forest": 2, "SeaLake": 2}, "{0}_{1}.jpg")


@raw_layout(table(4, labels={"agricultural": 2, "airplane": 2}))  # arrays with labels
def uc_merced(t: Tree) -> None:
    """UC Merced Land Use: UCMerced_LandUse/Images/class/class00.tif, readme.txt."""
    class_folders(t, "UCMerced_LandUse/Images/", {"agricultural": 2, "airplane": 2}, "{0}{1:02d}.tif", 0)
    t.put("UCMerced_LandUse/readme.txt", "21 classes\n")


@raw_layout(classification(4, {"airplane": 2, "baseball_diamond": 2}))
def resisc45(t: Tree) -> None:
    """NWPU-RESISC45: NWPU-RESISC45/class/class_001.jpg."""
    class_folders(t, "NWPU-RESISC45/", {"airplane": 2, "baseball_diamond": 2}, "{0}_{1:03d}.jpg")


@raw_layout()
def plant_village_variants(t: Tree) -> None:
    """spMohanty/PlantVillage-Dataset: raw/{color,grayscale,segmented}/class: three versions of the same images."""
    for variant in ("color", "grayscale", "segmented"):
        for name in ("Apple___Black_rot", "Apple___healthy"):
            t.images(f"raw/{variant}/{name}/{{}}___JR.JPG", ("0a", "0b"), "L" if variant == "grayscale" else "RGB")


OMNIGLOT = ("Alphabet_of_the_Magi/character01", "Alphabet_of_the_Magi/character02", "Greek/character01")


@raw_layout(classification(6, dict.fromkeys(OMNIGLOT, 2)), refusal=True)
def omniglot(t: Tree) -> None:
    """torchvision.datasets.Omniglot:

    images_background/alphabet/character01/0709_01.png; a class is one of an alphabet.
    """
    for i, name in enumerate(OMNIGLOT):
        t.images(f"images_background/{name}/{700 + i:04d}_{{:02d}}.png", (1, 2), "L")


@raw_layout(classification({"train": 2, "val": 1, "test": 1}, {"707-320": 2, "A340-300": 2}), refusal=True)
def fgvc_aircraft(t: Tree) -> None:
    """torchvision.datasets.FGVCAircraft:

    data/images/*.jpg, data/images_variant_train.txt (number, variant), variants.txt.
    """
    root = "fgvc-aircraft-2013b/data/"
    numbers = ("1025794", "1340192", "0056978", "0698580")
    t.images(root + "images/{}.jpg", numbers)
    variants = [f"{number} {('707-320', 'A340-300')[i % 2]}" for i, number in enumerate(numbers)]
    for split, lines in (("train", variants[:2]), ("val", variants[2:3]), ("test", variants[3:])):
        t.lines(f"{root}images_variant_{split}.txt", lines)
        t.lines(f"{root}images_family_{split}.txt", [line.replace("707-320", "Boeing 707") for line in lines])
    t.lines(root + "variants.txt", ["707-320", "A340-300"])
    t.lines(root + "images_box.txt", [f"{number} 1 2 9 8" for number in numbers])


@raw_layout(classification(4, {"antelope": 2, "grizzly+bear": 2}), refusal=True)
def awa2(t: Tree) -> None:
    """Animals with Attributes 2: JPEGImages/class/class_10001.jpg, classes.txt, predicate-matrix-binary.txt."""
    root = "Animals_with_Attributes2/"
    class_folders(t, root + "JPEGImages/", {"antelope": 2, "grizzly+bear": 2}, "{0}_{1}.jpg", 10001)
    t.lines(root + "classes.txt", ["     1\tantelope", "     2\tgrizzly+bear"])
    t.lines(root + "predicate-matrix-binary.txt", ["0 0 1", "1 0 1"])


@raw_layout()
def flickr8k(t: Tree) -> None:
    """Flickr8k: Flicker8k_Dataset/*.jpg, Flickr8k.token.txt (name#number, caption), Flickr_8k.trainImages.txt."""
    names = ("1000268201_693b08cb0e.jpg", "1001773457_577c3a7d70.jpg", "1002674143_1b742ab4b8.jpg")
    t.images("Flicker8k_Dataset/{}", names)
    t.lines("Flickr8k_text/Flickr8k.token.txt", [f"{name}#{i}\tA child ." for name in names for i in range(2)])
    t.lines("Flickr8k_text/Flickr_8k.trainImages.txt", names[:2])


@raw_layout(images({"*": 4}), refusal=True)
def utkface(t: Tree) -> None:
    """UTKFace: UTKFace/age_gender_race_time.jpg.chip.jpg; labels are in the file names."""
    t.images("UTKFace/{}.jpg.chip.jpg", ("39_1_0_2017", "26_0_1_2018", "1_1_4_2017", "80_0_0_2016"))


@raw_layout(classification({"train": 6, "val": 3}, {"cat": 3, "dog": 3, "wild": 3}))
def afhq(t: Tree) -> None:
    """AFHQ: afhq/{train,val}/{cat,dog,wild}/*.png."""
    for split, count in (("train", 2), ("val", 1)):
        class_folders(t, f"afhq/{split}/", {"cat": count, "dog": count, "wild": count}, "{0}_{1:06d}.png")


@raw_layout(classification(8, {"back_pack": 4, "bike": 4}), refusal=True)
def office_31(t: Tree) -> None:
    """Office-31: {amazon,webcam}/images/class/frame_0001.jpg: the domain is no class."""
    for domain in ("amazon", "webcam"):
        class_folders(t, f"{domain}/images/", {"back_pack": 2, "bike": 2}, "frame_{1:04d}.jpg")


@raw_layout()
def clevr(t: Tree) -> None:
    """The page of CLEVR: CLEVR_v1.0/{images/{train,val},questions/*.json,scenes/*.json}."""
    for split in ("train", "val"):
        t.images(f"CLEVR_v1.0/images/{split}/CLEVR_{split}_{{:06d}}.png", range(2))
        info = {"split": split, "version": "1.0"}
        question = {
            "image_index": 0,
            "image_filename": f"CLEVR_{split}_000000.png",
            "question": "Is it?",
            "answer": "yes",
        }
        t.json(f"CLEVR_v1.0/questions/CLEVR_{split}_questions.json", {"info": info, "questions": [question]})
        t.json(
            f"CLEVR_v1.0/scenes/CLEVR_{split}_scenes.json",
            {"info": info, "scenes": [{"image_index": 0, "objects": []}]},
        )


@raw_layout(images({"*": 4}), refusal=True)
def horse2zebra(t: Tree) -> None:
    """CycleGAN's datasets: horse2zebra/{trainA,trainB,testA,testB}/*.jpg: two domains without labels."""
    for name in ("trainA", "trainB", "testA", "testB"):
        t.image(f"horse2zebra/{name}/n0238_{name}.jpg")


@raw_layout(images({"train": 3, "val": 2, "test": 1}), refusal=True)
def pix2pix_facades(t: Tree) -> None:
    """pix2pix's datasets: facades/{train,val,test}/1.jpg, both images side by side in one file."""
    for split, count in (("train", 3), ("val", 2), ("test", 1)):
        t.images(f"facades/{split}/{{}}.jpg", range(1, count + 1))


@raw_layout(classification({"train": 4, "test": 2}, {"paper": 3, "rock": 3}), refusal=True)
def rock_paper_scissors(t: Tree) -> None:
    """Moroney's rock-paper-scissors: rps/class/*.png next to rps-test-set/class/*.png, as TFDS reads it."""
    for name in ("paper", "rock"):
        t.images(f"rps/{name}/{name}01-{{:03d}}.png", (0, 1))
        t.images(f"rps-test-set/{name}/test{name}01-{{:02d}}.png", (0,))


@raw_layout(classification({"train": 4, "val": 2}, {"n01440764": 3, "n02102040": 3}), refusal=True)
def imagenette(t: Tree) -> None:
    """fast.ai's imagenette2-160:

    {train,val}/wnid/*.JPEG and noisy_imagenette.csv (path, labels of five noise levels).
    """
    rows = []
    for wnid in ("n01440764", "n02102040"):
        for split, count in (("train", 2), ("val", 1)):
            t.images(f"imagenette2-160/{split}/{wnid}/{wnid}_{{}}.JPEG", range(count))
            rows += [
                [f"{split}/{wnid}/{wnid}_{i}.JPEG", wnid, wnid, "n03000684", split == "val"] for i in range(count)
            ]
    head = ["path", "noisy_labels_0", "noisy_labels_1", "noisy_labels_50", "is_valid"]
    t.csv("imagenette2-160/noisy_imagenette.csv", [head, *rows])


@raw_layout(
    table({"train": 3}, {"file_name": "Text|Image", "text": "Text"}),
    table({"train": 3}, {"image": "Image", "text": "Text"}),
    refusal=True,
)
def hugging_face_captions(t: Tree) -> None:
    """Hugging Face's ImageFolder documentation: folder/train/*.png with metadata.csv (file_name, text)."""
    t.images("train/{:04d}.png", range(3))
    t.csv(
        "train/metadata.csv", [["file_name", "text"], *[[f"{i:04d}.png", f"a photo of thing {i}"] for i in range(3)]]
    )


@raw_layout()
def hugging_face_jsonl_boxes(t: Tree) -> None:
    """Hugging Face's ImageFolder documentation: metadata.jsonl with objects: {bbox, categories}."""
    t.images("train/{:04d}.png", range(2))
    rows = [{"file_name": f"{i:04d}.png", "objects": {"bbox": [[1, 2, 8, 6]], "categories": [i]}} for i in range(2)]
    t.lines("train/metadata.jsonl", [json.dumps(row) for row in rows])


# Layouts that people have, after no listing in particular.


@raw_layout(images(4), published=False)
def plain_images(t: Tree) -> None:
    """A folder of images and nothing else."""
    t.images("IMG_{:04d}.jpg", range(4))


@raw_layout(images(4), published=False)
def images_in_images(t: Tree) -> None:
    """Images in a folder that is named `images`, which is no class."""
    t.images("data/images/{:04d}.jpg", range(4))


@raw_layout(images({"train": 3, "test": 2}), refusal=True, published=False)
def flat_splits(t: Tree) -> None:
    """Images directly in train/ and test/, which are no classes."""
    t.images("train/{:03d}.jpg", range(3))
    t.images("test/{:03d}.jpg", range(2))


@raw_layout(images({"*": 6}), refusal=True, published=False)
def photo_albums(t: Tree) -> None:
    """Albums by date: 2019/2019-07-01/IMG_0001.JPG. Dates are no classes."""
    for day in ("2019/2019-07-01", "2019/2019-12-24", "2020/2020-01-05"):
        t.images(day + "/IMG_{:04d}.JPG", (1, 2))


@raw_layout(classification(4, {"cat": 2, "dog": 2}), published=False)
def documents_next_to_classes(t: Tree) -> None:
    """README, LICENSE and requirements next to class folders."""
    class_folders(t, "", {"cat": 2, "dog": 2})
    t.put("README.md", "# Cats and dogs\n")
    t.put("LICENSE", "MIT\n")
    t.put("requirements.txt", "numpy\n")


@raw_layout(classification(4, {"cat": 2, "dog": 2}), published=False)
def hidden_files(t: Tree) -> None:
    """Files that systems leave: .DS_Store, Thumbs.db, desktop.ini, AppleDouble (._name.jpg), __MACOSX."""
    class_folders(t, "", {"cat": 2, "dog": 2})
    for name in ("cat", "dog"):
        t.put(f"{name}/.DS_Store", b"\0\0\0\1Bud1")
        t.put(f"{name}/Thumbs.db", b"\xd0\xcf\x11\xe0")
        t.put(f"{name}/desktop.ini", "[.ShellClassInfo]\n")
        t.put(f"{name}/._{name}_0001.jpg", b"\0\5\x16\7")
        t.put(f"__MACOSX/{name}/._{name}_0001.jpg", b"\0\5\x16\7")
    t.put(".ipynb_checkpoints/train-checkpoint.ipynb", "{}")


@raw_layout(classification(10, {str(i): 1 for i in range(10)}), published=False)
def classes_of_digits(t: Tree) -> None:
    """Classes named 0 to 9."""
    class_folders(t, "", {str(i): 1 for i in range(10)}, "img{1}.png")


@raw_layout(classification(6, {"Äpfel & Birnen": 2, "猫": 2, "hot dog (food)": 2}), published=False)
def classes_in_unicode(t: Tree) -> None:
    """Class names with spaces, brackets, umlauts and Chinese characters."""
    class_folders(t, "", {"Äpfel & Birnen": 2, "猫": 2, "hot dog (food)": 2}, "bild {1}.jpg")


@raw_layout(classification(4, {"cat": 2, "dog": 2}), refusal=True, published=False)
def empty_class(t: Tree) -> None:
    """A class folder without images."""
    class_folders(t, "", {"cat": 2, "dog": 2})
    t.folder("horse")


@raw_layout(classification(6, {"cat": 3, "dog": 3}), published=False)
def upper_case_extensions(t: Tree) -> None:
    """.JPG, .PNG and .Jpeg."""
    for name in ("cat", "dog"):
        for i, ending in enumerate(("JPG", "PNG", "Jpeg")):
            t.image(f"{name}/{name}{i}.{ending}", i)


@raw_layout(classification({"train": 4, "val": 2, "test": 2}, {"ok": 4, "defect": 4}), published=False)
def capital_splits(t: Tree) -> None:
    """Train/, Validation/ and Test/ with class folders."""
    for split, count in (("Train", 2), ("Validation", 1), ("Test", 1)):
        class_folders(t, f"{split}/", {"ok": count, "defect": count}, f"{{0}}_{split}_{{1}}.png")


@raw_layout(classification(4, {"cat": 2, "dog": 2}, layout="classification|table"), published=False)
def csv_of_paths(t: Tree) -> None:
    """labels.csv with paths below its own folder and class names."""
    t.images("images/{:03d}.jpg", range(4))
    t.csv("labels.csv", [["filename", "label"], *[[f"images/{i:03d}.jpg", ("cat", "dog")[i % 2]] for i in range(4)]])


@raw_layout(classification({"train": 2, "val": 2}, {"0": 2, "1": 2}), refusal=True, published=False)
def lists_of_paths_and_ids(t: Tree) -> None:
    """train.txt and val.txt with `path id`, next to a folder of images."""
    t.images("images/{:03d}.jpg", range(4))
    t.lines("train.txt", [f"images/{i:03d}.jpg {i % 2}" for i in range(2)])
    t.lines("val.txt", [f"images/{i:03d}.jpg {i % 2}" for i in range(2, 4)])


@raw_layout(images(3), classification(3, {"cat": 3}), refusal=True, published=False)
def single_folder(t: Tree) -> None:
    """One folder of images below the root: one class, or none."""
    t.images("photos/cat/{}.jpg", range(3))


@raw_layout(published=False)
def empty_folder(t: Tree) -> None:
    """Nothing at all."""
    t.folder("data")


@raw_layout(published=False)
def archives_only(t: Tree) -> None:
    """Archives that nobody unpacked."""
    t.put("train.zip", b"PK\5\6" + bytes(18))
    t.put("test.zip", b"PK\5\6" + bytes(18))
    t.put("README.md", "Unzip first.\n")
