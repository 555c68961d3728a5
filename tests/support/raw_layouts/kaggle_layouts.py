"""Datasets of images with classes, as Kaggle distributes them."""

from __future__ import annotations

from raw_layouts import Tree, classification, images, raw_layout, table
from raw_layouts.class_layouts import WNIDS, class_folders


@raw_layout()
def imagenet_kaggle(t: Tree) -> None:
    """Kaggle's ImageNet challenge:

    ILSVRC/{Data,Annotations,ImageSets}/CLS-LOC, LOC_*_solution.csv, flat val and test.
    """
    data, boxes = "ILSVRC/Data/CLS-LOC", "ILSVRC/Annotations/CLS-LOC"
    for i, wnid in enumerate(WNIDS):
        t.images(f"{data}/train/{wnid}/{wnid}_{{}}.JPEG", (18, 36))
        t.voc_xml(f"{boxes}/train/{wnid}/{wnid}_18.xml", f"{wnid}_18", [wnid])
        t.image(f"{data}/val/ILSVRC2012_val_0000000{i + 1}.JPEG")
        t.voc_xml(f"{boxes}/val/ILSVRC2012_val_0000000{i + 1}.xml", f"ILSVRC2012_val_0000000{i + 1}", [wnid])
        t.image(f"{data}/test/ILSVRC2012_test_0000000{i + 1}.JPEG")
    t.lines("ILSVRC/ImageSets/CLS-LOC/train_cls.txt", [f"{wnid}/{wnid}_18 {i + 1}" for i, wnid in enumerate(WNIDS)])
    t.lines("LOC_train_solution.csv", ["ImageId,PredictionString", f"{WNIDS[0]}_18,{WNIDS[0]} 1 2 9 8 "])
    t.lines("LOC_synset_mapping.txt", [f"{WNIDS[0]} tench, Tinca tinca", f"{WNIDS[1]} goldfish, Carassius auratus"])


@raw_layout(classification({"train": 4, "test": 2}, {"0": 3, "1": 3}), refusal=True)
def gtsrb_kaggle(t: Tree) -> None:
    """Kaggle's GTSRB: Train/0…42/*.png, Test/*.png, Meta/*.png, and Train.csv, Test.csv, Meta.csv."""
    head = ["Width", "Height", "Roi.X1", "Roi.Y1", "Roi.X2", "Roi.Y2", "ClassId", "Path"]
    rows = []
    for i in range(2):
        t.images(f"Train/{i}/0000{i}_00000_{{:05d}}.png", range(2))
        rows += [[16, 12, 1, 2, 9, 8, i, f"Train/{i}/0000{i}_00000_{n:05d}.png"] for n in range(2)]
        t.image(f"Test/{i:05d}.png", i)
        t.image(f"Meta/{i}.png", i)
    t.csv("Train.csv", [head, *rows])
    t.csv("Test.csv", [head, *[[16, 12, 1, 2, 9, 8, i, f"Test/{i:05d}.png"] for i in range(2)]])
    t.csv("Meta.csv", [["Path", "ClassId", "ShapeId", "ColorId", "SignId"], ["Meta/0.png", 0, 1, 0, "3.29"]])


@raw_layout(table({"*": 4}, {"Smiling": "Int64|Label", "Male": "Int64|Label"}), refusal=True)
def celeba_kaggle(t: Tree) -> None:
    """Kaggle's CelebA: img_align_celeba/img_align_celeba/*.jpg, list_attr_celeba.csv, list_eval_partition.csv …"""
    names = [f"{i:06d}.jpg" for i in range(1, 5)]
    for i, name in enumerate(names):
        t.image(f"img_align_celeba/img_align_celeba/{name}", i)
    t.csv("list_attr_celeba.csv", [["image_id", "Smiling", "Male"], *[[name, 1, -1] for name in names]])
    t.csv(
        "list_bbox_celeba.csv",
        [["image_id", "x_1", "y_1", "width", "height"], *[[name, 1, 2, 8, 6] for name in names]],
    )
    t.csv("list_eval_partition.csv", [["image_id", "partition"], *[[name, 0] for name in names]])


@raw_layout(images({"*": 6}), classification({"*": 4}, {"cat": 2, "dog": 2}), refusal=True)
def dogs_vs_cats(t: Tree) -> None:
    """Kaggle's Dogs vs. Cats: train/cat.0.jpg, train/dog.0.jpg, test1/1.jpg, sampleSubmission.csv."""
    t.images("train/cat.{}.jpg", range(2))
    t.images("train/dog.{}.jpg", range(2))
    t.images("test1/{}.jpg", (1, 2))
    t.csv("sampleSubmission.csv", [["id", "label"], [1, 0], [2, 0]])


@raw_layout(classification(6, {"Cat": 3, "Dog": 3}))
def pet_images(t: Tree) -> None:
    """Microsoft's cats and dogs: PetImages/{Cat,Dog}/*.jpg with Thumbs.db, and a PDF licence next to it."""
    class_folders(t, "PetImages/", {"Cat": 3, "Dog": 3}, "{1}.jpg", 0)
    t.put("PetImages/Cat/Thumbs.db", b"\xd0\xcf\x11\xe0")
    t.put("PetImages/Dog/Thumbs.db", b"\xd0\xcf\x11\xe0")
    t.put("MSR-LA - 3467.docx", b"PK\3\4")
    t.put("readme[1].txt", "The PetImages folder has two classes.\n")


@raw_layout(classification({"train": 4, "val": 2, "test": 2}, {"NORMAL": 4, "PNEUMONIA": 4}))
def chest_xray(t: Tree) -> None:
    """Kaggle's chest X-ray images: chest_xray/{train,val,test}/{NORMAL,PNEUMONIA}/*.jpeg, with .DS_Store files."""
    for split, count in (("train", 2), ("val", 1), ("test", 1)):
        t.images(f"chest_xray/{split}/NORMAL/IM-{{:04d}}-0001.jpeg", range(count), "L")
        t.images(f"chest_xray/{split}/PNEUMONIA/person{{}}_bacteria_1.jpeg", range(count))
        t.put(f"chest_xray/{split}/.DS_Store", b"\0\0\0\1Bud1")


@raw_layout(classification({"*": 4}, {"0": 2, "2": 1, "4": 1}, layout="classification|table"), refusal=True)
def aptos_2019(t: Tree) -> None:
    """Kaggle's APTOS 2019:

    train.csv (id_code without extension, diagnosis), train_images/, test.csv, test_images/.
    """
    t.csv(
        "train.csv",
        [
            ["id_code", "diagnosis"],
            ["000c1434d8d7", 2],
            ["001639a390f0", 4],
            ["0024cdab0c1e", 0],
            ["002c21358ce6", 0],
        ],
    )
    t.images("train_images/{}.png", ("000c1434d8d7", "001639a390f0", "0024cdab0c1e", "002c21358ce6"))
    t.csv("test.csv", [["id_code"], ["0005cfc8afb6"]])
    t.images("test_images/{}.png", ("0005cfc8afb6",))
    t.csv("sample_submission.csv", [["id_code", "diagnosis"], ["0005cfc8afb6", 0]])


PLANTS = {"healthy": "Int64|Label", "multiple_diseases": "Int64|Label", "rust": "Int64|Label", "scab": "Int64|Label"}


@raw_layout(table({"*": 3}, PLANTS), refusal=True)
def plant_pathology_2020(t: Tree) -> None:
    """Kaggle's Plant Pathology 2020:

    images/{Train,Test}_0.jpg, train.csv (image_id, one column per class), test.csv.
    """
    t.images("images/Train_{}.jpg", range(3))
    t.images("images/Test_{}.jpg", range(2))
    rows = [["Train_0", 0, 0, 0, 1], ["Train_1", 0, 1, 0, 0], ["Train_2", 1, 0, 0, 0]]
    t.csv("train.csv", [["image_id", *PLANTS], *rows])
    t.csv("test.csv", [["image_id"], ["Test_0"], ["Test_1"]])
    t.csv("sample_submission.csv", [["image_id", *PLANTS], ["Test_0", 0.25, 0.25, 0.25, 0.25]])


CASSAVA = {"0": "Cassava Bacterial Blight (CBB)", "1": "Cassava Brown Streak Disease (CBSD)", "4": "Healthy"}


@raw_layout(
    classification({"*": 4}, {"0": 1, "1": 1, "4": 2}, layout="classification|table"),
    classification({"*": 4}, {CASSAVA["0"]: 1, CASSAVA["1"]: 1, CASSAVA["4"]: 2}),
    refusal=True,
)
def cassava(t: Tree) -> None:
    """Kaggle's Cassava Leaf Disease:

    train.csv (image_id, label), train_images/, test_images/, label_num_to_disease_map.json.
    """
    names = ["1000015157.jpg", "1000201771.jpg", "100042118.jpg", "1000723321.jpg"]
    for i, name in enumerate(names):
        t.image(f"train_images/{name}", i)
    t.csv("train.csv", [["image_id", "label"], *zip(names, (0, 1, 4, 4), strict=True)])
    t.image("test_images/2216849948.jpg")
    t.csv("sample_submission.csv", [["image_id", "label"], ["2216849948.jpg", 4]])
    t.json("label_num_to_disease_map.json", CASSAVA)


@raw_layout(classification({"*": 4}, {"nv": 2, "mel": 1, "bkl": 1}, layout="classification|table"), refusal=True)
def ham10000(t: Tree) -> None:
    """HAM10000 on Kaggle: HAM10000_images_part_1/, _part_2/, HAM10000_metadata.csv (lesion_id, image_id, dx, …)."""
    names = [f"ISIC_002{i}" for i in range(4)]
    t.images("HAM10000_images_part_1/{}.jpg", names[:2])
    t.images("HAM10000_images_part_2/{}.jpg", names[2:])
    head = ["lesion_id", "image_id", "dx", "dx_type", "age", "sex", "localization"]
    rows = [
        [f"HAM_000{i}", name, dx, "histo", 80.0 - i, "male", "scalp"]
        for i, (name, dx) in enumerate(zip(names, ("bkl", "nv", "mel", "nv"), strict=True))
    ]
    t.csv("HAM10000_metadata.csv", [head, *rows])
    pixels = [f"pixel{i:04d}" for i in range(12)]
    t.csv("hmnist_8_8_L.csv", [[*pixels, "label"], [*range(12), 2], [*range(12), 4]])


@raw_layout(table({"*": 3}, {"MEL": "Float32|Int64|Label", "NV": "Float32|Int64|Label"}), refusal=True)
def isic_2019(t: Tree) -> None:
    """ISIC 2019: ISIC_2019_Training_Input/*.jpg, …_GroundTruth.csv (image, MEL, NV, …), …_Metadata.csv."""
    names = [f"ISIC_000000{i}" for i in range(3)]
    t.images("ISIC_2019_Training_Input/{}.jpg", names)
    t.put("ISIC_2019_Training_Input/LICENSE.txt", "CC-BY-NC\n")
    head = ["image", "MEL", "NV", "BCC", "UNK"]
    rows = [[name, *["1.0" if i == j else "0.0" for j in range(4)]] for i, name in enumerate(names)]
    t.csv("ISIC_2019_Training_GroundTruth.csv", [head, *rows])
    t.csv(
        "ISIC_2019_Training_Metadata.csv",
        [["image", "age_approx", "sex"], *[[name, 55.0, "female"] for name in names]],
    )


@raw_layout(classification(4, {"Tomato_healthy": 2, "Potato___Early_blight": 2}))
def plant_village(t: Tree) -> None:
    """Kaggle's PlantVillage: PlantVillage/plant_disease/*.JPG."""
    class_folders(t, "PlantVillage/", {"Tomato_healthy": 2, "Potato___Early_blight": 2}, "00{1}f___RS_HL.JPG")


@raw_layout(classification({"train": 4, "test": 2}, {"buildings": 3, "forest": 3}), refusal=True)
def intel_scenes(t: Tree) -> None:
    """Kaggle's Intel image classification:

    seg_train/seg_train/class, seg_test/seg_test/class, seg_pred/seg_pred/*.jpg.
    """
    for name in ("buildings", "forest"):
        t.images(f"seg_train/seg_train/{name}/{{}}.jpg", (1, 2))
        t.images(f"seg_test/seg_test/{name}/{{}}.jpg", (20,))
    t.images("seg_pred/seg_pred/{}.jpg", (3, 5))


@raw_layout(classification({"train": 4, "test": 2}, {"Apple Braeburn": 3, "Pear 2": 3}))
def fruits_360(t: Tree) -> None:
    """Fruits-360: fruits-360/{Training,Test}/class with spaces/0_100.jpg, LICENSE, readme.md."""
    for name in ("Apple Braeburn", "Pear 2"):
        t.images(f"fruits-360/Training/{name}/{{}}_100.jpg", (0, 1))
        t.images(f"fruits-360/Test/{name}/{{}}_100.jpg", (3,))
    t.put("fruits-360/LICENSE", "CC BY-SA\n")
    t.put("fruits-360/readme.md", "# Fruits-360\n")


@raw_layout(
    table({"*": 6}, {"caption": "Text", "image": "Text|Image"}),
    table({"*": 6}, {"text": "Text", "image": "Image"}),
    refusal=True,
)
def flickr8k_kaggle(t: Tree) -> None:
    """Kaggle's Flickr 8k: Images/*.jpg and captions.txt (image,caption), five captions an image."""
    names = ("1000268201_693b08cb0e.jpg", "1001773457_577c3a7d70.jpg")
    t.images("Images/{}", names)
    t.csv(
        "captions.txt",
        [["image", "caption"], *[[name, f"A child , number {i} ."] for name in names for i in range(3)]],
    )


@raw_layout(classification(4, {"COVID": 2, "Normal": 2}, unused=("masks",)), refusal=True)
def covid_radiography(t: Tree) -> None:
    """Kaggle's COVID-19 Radiography: class/images/*.png, class/masks/*.png, class.metadata.xlsx."""
    root = "COVID-19_Radiography_Dataset/"
    for name in ("COVID", "Normal"):
        t.images(f"{root}{name}/images/{name}-{{}}.png", (1, 2), "L")
        t.masks(f"{root}{name}/masks/{name}-{{}}.png", (1, 2), (0, 255))
        t.put(f"{root}{name}.metadata.xlsx", b"PK\3\4")


@raw_layout()
def breakhis(t: Tree) -> None:
    """BreakHis: histology_slides/breast/{benign,malignant}/SOB/tumour/patient/40X/*.png: classes six levels up."""
    root = "BreaKHis_v1/histology_slides/breast/"
    for kind, tumour in (("benign", "adenosis"), ("malignant", "ductal_carcinoma")):
        for zoom in ("40X", "100X"):
            t.images(f"{root}{kind}/SOB/{tumour}/SOB_{kind[0].upper()}_14-1/{zoom}/SOB-{zoom}-{{:03d}}.png", (1, 2))
    t.put(root + "README.txt", "BreakHis\n")


@raw_layout(classification({"*": 3}, {"0": 2, "1": 1}, layout="classification|table"), refusal=True)
def histopathologic_cancer(t: Tree) -> None:
    """Kaggle's histopathologic cancer detection: train/id.tif, test/id.tif, train_labels.csv (id,label)."""
    names = ("f38a6374", "c18f2d88", "755db627")
    t.images("train/{}.tif", names)
    t.images("test/{}.tif", ("0b2ea2a8",))
    t.csv("train_labels.csv", [["id", "label"], *zip(names, (0, 0, 1), strict=True)])
    t.csv("sample_submission.csv", [["id", "label"], ["0b2ea2a8", 0]])
