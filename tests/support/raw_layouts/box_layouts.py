"""Datasets of images with boxes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from raw_layouts import BOXES, Tree, classification, detection, raw_layout, segmentation, table

CATS = (("cat",), ("cat", "dog"), ())
"""Classes of the boxes of three images; the last has none."""
CAT_BOXES = {"cat": 2, "dog": 1}
IDS = ((0,), (0, 1), ())
ID_BOXES = {"0": 2, "1": 1}

VISION = ("Car", "Pedestrian")


def kitti_labels(t: Tree, root: str, count: int) -> None:
    """Images and labels of KITTI: type, truncated, occluded, alpha, box, dimensions, location, rotation."""
    t.images(root + "image_2/{:06d}.png", range(count))
    for i in range(count):
        lines = [
            f"{name} 0.00 0 -0.20 {x0}.00 {y0}.00 {x1}.00 {y1}.00 1.89 0.48 1.20 1.84 1.47 8.41 0.01"
            for name, (x0, y0, x1, y1) in zip(VISION[: i + 1], BOXES, strict=False)
        ]
        t.lines(f"{root}label_2/{i:06d}.txt", lines)


@raw_layout(detection(2, {"Car": 2, "Pedestrian": 1}), refusal=True)
def kitti_detection(t: Tree) -> None:
    """torchvision.datasets.Kitti: Kitti/raw/training/{image_2,label_2}."""
    kitti_labels(t, "Kitti/raw/training/", 2)


@raw_layout(
    detection({"train": 2, "test": 2}, {"Car": 2, "Pedestrian": 1}),
    detection(2, {"Car": 2, "Pedestrian": 1}, unused=("testing",)),
    refusal=True,
)
def kitti_object(t: Tree) -> None:
    """The KITTI object benchmark as downloaded:

    training/{image_2,label_2,calib,velodyne}, testing/{image_2,calib}.
    """
    kitti_labels(t, "training/", 2)
    t.images("testing/image_2/{:06d}.png", range(2))
    for i in range(2):
        t.put(f"training/velodyne/{i:06d}.bin", bytes(64))
        for split in ("training", "testing"):
            t.put(f"{split}/calib/{i:06d}.txt", "P0: 7.2e+02 0 6.0e+02 0 0 7.2e+02 1.7e+02 0 0 0 1 0\n")


def voc_year(t: Tree, root: str) -> None:
    """A VOC folder of three annotated images, one with masks."""
    stems = ("000005", "000007", "000009")
    t.images(root + "JPEGImages/{}.jpg", stems)
    for i, stem in enumerate(stems):
        t.voc_xml(f"{root}Annotations/{stem}.xml", f"{stem}.jpg", (("cat",), ("cat", "dog"), ("dog",))[i], i)
    for name, lines in (("train", stems[:2]), ("val", stems[2:]), ("trainval", stems)):
        t.lines(f"{root}ImageSets/Main/{name}.txt", lines)
        t.lines(
            f"{root}ImageSets/Main/cat_{name}.txt", [f"{stem} {-1 if stem == '000009' else 1:2d}" for stem in lines]
        )
    for name, lines in (("train", stems[:1]), ("val", stems[2:]), ("trainval", (stems[0], stems[2]))):
        t.lines(f"{root}ImageSets/Segmentation/{name}.txt", lines)
    for i in (0, 2):
        t.mask(f"{root}SegmentationClass/{stems[i]}.png", i, (0, 8, 12), "P")
        t.mask(f"{root}SegmentationObject/{stems[i]}.png", i, (0, 1, 2), "P")


VOC_READINGS = (
    detection({"train": 2, "val": 1}, {"cat": 2, "dog": 2}),
    segmentation({"train": 1, "val": 1}, "0 8 12"),
)


@raw_layout(*VOC_READINGS)
def voc_2012(t: Tree) -> None:
    """torchvision.datasets.VOCDetection: VOCdevkit/VOC2012/{Annotations,ImageSets,JPEGImages,Segmentation*}."""
    voc_year(t, "VOCdevkit/VOC2012/")


@raw_layout(*VOC_READINGS)
def voc_2007_year_folder(t: Tree) -> str:
    """The folder VOC2007 of the PASCAL VOC development kit, given directly."""
    voc_year(t, "VOCdevkit/VOC2007/")
    return "VOCdevkit/VOC2007"


@raw_layout()
def voc_two_years(t: Tree) -> None:
    """VOCdevkit with VOC2007 and VOC2012 side by side, as detection code bases ask for it."""
    voc_year(t, "VOCdevkit/VOC2007/")
    voc_year(t, "VOCdevkit/VOC2012/")


@raw_layout(detection(3, {"cat": 2, "dog": 2}))
def voc_without_lists(t: Tree) -> None:
    """Annotations/ and JPEGImages/ only, as LabelImg users keep them (its documentation of PascalVOC format)."""
    t.images("JPEGImages/{:04d}.jpg", range(3))
    for i, names in enumerate((("cat",), ("cat", "dog"), ("dog",))):
        t.voc_xml(f"Annotations/{i:04d}.xml", f"{i:04d}.jpg", names, i)


@raw_layout(detection(2, {"raccoon": 2}), refusal=True)
def raccoon(t: Tree) -> None:
    """datitran/raccoon_dataset:

    images/*.jpg, annotations/*.xml, data/{raccoon_labels,train_labels,test_labels}.csv.
    """
    t.images("images/raccoon-{}.jpg", (1, 2))
    rows = []
    for i in (1, 2):
        t.voc_xml(f"annotations/raccoon-{i}.xml", f"raccoon-{i}.jpg", ["raccoon"], i - 1)
        rows.append([f"raccoon-{i}.jpg", 15 + i, 11 + i, "raccoon", *BOXES[0]])
    head = ["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"]
    t.csv("data/raccoon_labels.csv", [head, *rows])
    t.csv("data/train_labels.csv", [head, rows[0]])
    t.csv("data/test_labels.csv", [head, rows[1]])


@raw_layout(detection({"train": 2, "val": 1}, {"RBC": 2, "WBC": 2}))
def bccd(t: Tree) -> None:
    """Shenggan/BCCD_Dataset: BCCD/{Annotations,ImageSets/Main,JPEGImages}."""
    stems = [f"BloodImage_0000{i}" for i in range(3)]
    t.images("BCCD/JPEGImages/{}.jpg", stems)
    for i, stem in enumerate(stems):
        t.voc_xml(f"BCCD/Annotations/{stem}.xml", f"{stem}.jpg", (("RBC", "WBC"), ("WBC",), ("RBC",))[i], i)
    t.lines("BCCD/ImageSets/Main/train.txt", stems[:2])
    t.lines("BCCD/ImageSets/Main/val.txt", stems[2:])


@raw_layout(detection(2, {"cat": 2, "dog": 1}))
def labelimg_same_folder(t: Tree) -> None:
    """LabelImg's default: each *.xml next to its image."""
    for i in range(2):
        t.image(f"{i}.jpg", i)
        t.voc_xml(f"{i}.xml", f"{i}.jpg", CATS[i], i)


@raw_layout(detection({"train": 3, "val": 2}, {"cat": 4, "dog": 2}))
def coco_2017(t: Tree) -> None:
    """cocodataset.org:

    train2017/, val2017/, annotations/{instances,captions,person_keypoints}_{train,val}2017.json.
    """
    for split, count in (("train", 3), ("val", 2)):
        files = [f"{i:012d}.jpg" for i in range(count)]
        t.images(f"{split}2017/{{}}", files)
        t.coco(f"annotations/instances_{split}2017.json", files, CATS[:count])
        listed = [{"id": i + 1, "file_name": name, "width": 16 + i, "height": 12 + i} for i, name in enumerate(files)]
        captions = [{"id": i + 1, "image_id": i + 1, "caption": f"Thing {i}."} for i in range(count)]
        t.json(f"annotations/captions_{split}2017.json", {"info": {}, "images": listed, "annotations": captions})


@raw_layout(detection(3, CAT_BOXES))
def coco_one_file(t: Tree) -> None:
    """COCO as labelling tools export it: images/ and annotations.json."""
    t.images("images/{}.jpg", range(3))
    t.coco("annotations.json", [f"{i}.jpg" for i in range(3)], CATS)


@raw_layout()
def coco_captions_only(t: Tree) -> None:
    """cocodataset.org: captions without boxes: val2017/ and annotations/captions_val2017.json."""
    files = [f"{i:012d}.jpg" for i in range(2)]
    t.images("val2017/{}", files)
    captions = [{"id": i, "image_id": i, "caption": f"Thing {i}."} for i in range(2)]
    listed = [{"id": i, "file_name": name, "width": 16 + i, "height": 12 + i} for i, name in enumerate(files)]
    t.json("annotations/captions_val2017.json", {"info": {}, "images": listed, "annotations": captions})


@raw_layout(detection({"train": 3}, CAT_BOXES), refusal=True)
def lvis(t: Tree) -> None:
    """lvisdataset.org: lvis_v1_train.json (coco_url instead of file_name, no iscrowd) with COCO's train2017/."""
    files = [f"{i:012d}.jpg" for i in range(3)]
    t.images("train2017/{}", files)
    t.coco("lvis_v1_train.json", files, CATS)
    document = json.loads((t.root / "lvis_v1_train.json").read_text())
    for image in document["images"]:
        image["coco_url"] = "http://images.cocodataset.org/train2017/" + image.pop("file_name")
        image["neg_category_ids"] = []
    for annotation in document["annotations"]:
        del annotation["iscrowd"]
    t.json("lvis_v1_train.json", document)


@raw_layout(
    detection({"train": 2}, {"Cat": 2, "Dog": 1}),
    detection({"train": 2}, {"/m/01yrx": 2, "/m/0bt9lr": 1}),
    refusal=True,
)
def open_images(t: Tree) -> None:
    """The Open Images V6 page: train/*.jpg, train-annotations-bbox.csv (0 … 1), class-descriptions-boxable.csv."""
    names = ("000002b66c9c498e", "000002b97e5471a0")
    t.images("train/{}.jpg", names)
    head = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax"
    head += ",IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"
    rows = []
    for i, mids in enumerate((("/m/01yrx",), ("/m/01yrx", "/m/0bt9lr"))):
        for mid, (x0, y0, x1, y1) in zip(mids, BOXES, strict=False):
            sides = (x0 / (16 + i), x1 / (16 + i), y0 / (12 + i), y1 / (12 + i))
            rows.append(f"{names[i]},xclick,{mid},1," + ",".join([f"{side:.6f}" for side in sides]) + ",0,0,0,0,0")
    t.lines("train-annotations-bbox.csv", [head, *rows])
    t.lines("class-descriptions-boxable.csv", ["/m/01yrx,Cat", "/m/0bt9lr,Dog"])


@raw_layout(detection({"train": 2, "val": 1}, {"*": 4}), refusal=True)
def wider_face(t: Tree) -> None:
    """torchvision.datasets.WIDERFace:

    WIDER_train/images/0--Parade/*.jpg, wider_face_split/wider_face_train_bbx_gt.txt.
    """
    for split, files in (
        ("train", ("0--Parade/0_Parade_1", "1--Handshaking/1_Handshaking_1")),
        ("val", ("0--Parade/0_Parade_9",)),
    ):
        lines = []
        for i, name in enumerate(files):
            t.image(f"WIDER_{split}/images/{name}.jpg", i)
            lines += [f"{name}.jpg", str(i + 1)]
            lines += [f"{x0} {y0} {x1 - x0} {y1 - y0} 0 0 0 0 0 0 " for x0, y0, x1, y1 in BOXES[: i + 1]]
        t.lines(f"wider_face_split/wider_face_{split}_bbx_gt.txt", lines)
    t.mat("wider_face_split/wider_face_train.mat", {"face_bbx_list": [[1]]})
    t.put("wider_face_split/readme.txt", "The format of txt ground truth.\n")


def corners(box: Sequence[int]) -> str:
    """The four corners of a box, clockwise."""
    x0, y0, x1, y1 = box
    return f"{x0} {y0} {x1} {y0} {x1} {y1} {x0} {y1}"


@raw_layout(detection({"train": 2, "val": 1}, {"plane": 3, "ship": 1}), refusal=True)
def dota(t: Tree) -> None:
    """The DOTA page:

    {train,val}/{images,labelTxt}/P0000.*; two header lines, then eight coordinates, class, difficult.
    """
    for split, count in (("train", 2), ("val", 1)):
        t.images(f"{split}/images/P000{{}}.png", range(count))
        for i in range(count):
            names = (("plane",), ("plane", "ship"))[i]
            lines = [f"{corners(box)} {name} 0" for name, box in zip(names, BOXES, strict=False)]
            t.lines(f"{split}/labelTxt/P000{i}.txt", ["imagesource:GoogleEarth", "gsd:0.146", *lines])


@raw_layout(detection({"*": 3}, {"*": 4}), refusal=True)
def mot17(t: Tree) -> None:
    """motchallenge.net: MOT17/train/MOT17-02-DPM/{img1,gt/gt.txt,det/det.txt,seqinfo.ini}."""
    root = "MOT17/train/MOT17-02-DPM/"
    t.images(root + "img1/{:06d}.jpg", (1, 2, 3))
    lines = []
    for frame in range(3):
        for track, (x0, y0, x1, y1) in enumerate(BOXES[: 2 if frame == 1 else 1]):
            lines.append(f"{frame + 1},{track + 1},{x0},{y0},{x1 - x0},{y1 - y0},1,1,0.9")
    t.lines(root + "gt/gt.txt", lines)
    t.lines(root + "det/det.txt", ["1,-1,1.0,2.0,8.0,6.0,0.99"])
    t.put(
        root + "seqinfo.ini",
        "[Sequence]\nname=MOT17-02-DPM\nimDir=img1\nframeRate=30\nseqLength=3\nimWidth=16\nimHeight=12\nimExt=.jpg\n",
    )


@raw_layout(detection({"*": 3}, {"car": 3, "pedestrian": 1}), detection({"*": 3}, {"4": 3, "1": 1}), refusal=True)
def visdrone(t: Tree) -> None:
    """VisDrone2019-DET as Ultralytics' VisDrone.yaml reads it:

    VisDrone2019-DET-train/{images,annotations}, comma-separated.
    """
    for split, count in (("train", 2), ("val", 1)):
        root = f"VisDrone2019-DET-{split}/"
        t.images(root + f"images/999_{split}_d_{{:07d}}.jpg", range(count))
        for i in range(count):
            lines = [
                f"{x0},{y0},{x1 - x0},{y1 - y0},1,{(4, 1)[j]},0,0"
                for j, (x0, y0, x1, y1) in enumerate(BOXES[: i + 1])
            ]
            t.lines(f"{root}annotations/999_{split}_d_{i:07d}.txt", lines)


@raw_layout(detection({"*": 2}, {"car": 2}), refusal=True)
def ua_detrac(t: Tree) -> None:
    """UA-DETRAC: Insight-MVT_Annotation_Train/MVI_20011/img00001.jpg, DETRAC-Train-Annotations-XML/MVI_20011.xml."""
    t.images("Insight-MVT_Annotation_Train/MVI_20011/img{:05d}.jpg", (1, 2))
    frames = "".join(
        [
            f'<frame density="1" num="{i}"><target_list><target id="1"><box left="1" top="2" width="8" height="6"/>'
            '<attribute vehicle_type="car" speed="4.0"/></target></target_list></frame>\n'
            for i in (1, 2)
        ]
    )
    t.put(
        "DETRAC-Train-Annotations-XML/MVI_20011.xml",
        f'<?xml version="1.0"?><sequence name="MVI_20011">{frames}</sequence>',
    )


@raw_layout(detection({"*": 2}, {"person": 3}), refusal=True)
def crowdhuman(t: Tree) -> None:
    """crowdhuman.org:

    Images/id.jpg, annotation_train.odgt (a JSON object per line with gtboxes: fbox, vbox, hbox).
    """
    names = ("273271,c9db000d5146c15", "273271,1017c000ac1360b7")
    t.images("Images/{}.jpg", names)
    lines = []
    for i, name in enumerate(names):
        people = [
            {
                "tag": "person",
                "hbox": [x0, y0, 2, 2],
                "fbox": [x0, y0, x1 - x0, y1 - y0],
                "vbox": [x0, y0, 4, 4],
                "extra": {},
            }
            for x0, y0, x1, y1 in BOXES[: i + 1]
        ]
        lines.append(json.dumps({"ID": name, "gtboxes": people}))
    t.lines("annotation_train.odgt", lines)


def cvat_boxes(names: Sequence[str]) -> str:
    return "".join(
        [
            f'<box label="{name}" source="manual" occluded="0" '
            f'xtl="{x0}.00" ytl="{y0}.00" xbr="{x1}.00" ybr="{y1}.00" z_order="0"></box>'
            for name, (x0, y0, x1, y1) in zip(names, BOXES, strict=False)
        ]
    )


@raw_layout(detection(3, CAT_BOXES), refusal=True)
def cvat_images(t: Tree) -> None:
    """CVAT's documentation of "CVAT for images": images/, annotations.xml with <image><box>."""
    t.images("images/frame_{:06d}.png", range(3))
    listed = "".join(
        [
            f'<image id="{i}" name="frame_{i:06d}.png" width="{16 + i}" height="{12 + i}">'
            + cvat_boxes(CATS[i])
            + "</image>\n"
            for i in range(3)
        ]
    )
    t.put(
        "annotations.xml",
        f"<?xml version='1.0' encoding='utf-8'?><annotations><version>1.1</version>{listed}</annotations>",
    )


@raw_layout(refusal=True)
def cvat_video(t: Tree) -> None:
    """CVAT's documentation of "CVAT for videos": annotations.xml with <track>, no images."""
    box = '<box frame="0" outside="0" occluded="0" keyframe="1" xtl="1" ytl="2" xbr="9" ybr="8"></box>'
    t.put(
        "annotations.xml", f'<annotations><version>1.1</version><track id="0" label="car">{box}</track></annotations>'
    )


@raw_layout(detection(2, CAT_BOXES), refusal=True)
def labelme_json(t: Tree) -> None:
    """wkentaro/labelme: each image has a JSON file of its own name with shapes (here rectangles)."""
    for i in range(2):
        t.image(f"{i:04d}.jpg", i)
        shapes = [
            {"label": name, "points": [[x0, y0], [x1, y1]], "group_id": None, "shape_type": "rectangle", "flags": {}}
            for name, (x0, y0, x1, y1) in zip(CATS[i], BOXES, strict=False)
        ]
        t.json(
            f"{i:04d}.json",
            {
                "version": "4.5.6",
                "flags": {},
                "shapes": shapes,
                "imagePath": f"{i:04d}.jpg",
                "imageData": None,
                "imageHeight": 12 + i,
                "imageWidth": 16 + i,
            },
        )


@raw_layout()
def labelme_polygons(t: Tree) -> None:
    """labelme's semantic-segmentation example: data_annotated/*.{jpg,json} with polygons, labels.txt."""
    for i in range(2):
        t.image(f"data_annotated/2011_00000{i}.jpg", i)
        shape = {"label": "bottle", "points": [[1, 2], [9, 3], [5, 8]], "shape_type": "polygon", "flags": {}}
        t.json(
            f"data_annotated/2011_00000{i}.json",
            {
                "version": "4.0.0",
                "shapes": [shape],
                "imagePath": f"2011_00000{i}.jpg",
                "imageData": None,
                "imageHeight": 12 + i,
                "imageWidth": 16 + i,
            },
        )
    t.lines("labels.txt", ["__ignore__", "_background_", "bottle"])


@raw_layout(detection(2, CAT_BOXES), refusal=True)
def labelme_xml(t: Tree) -> None:
    """MIT's LabelMe: Images/folder/*.jpg, Annotations/folder/*.xml with <polygon><pt>; not VOC's XML."""
    for i in range(2):
        t.image(f"Images/users/img{i}.jpg", i)
        objects = ""
        for name, (x0, y0, x1, y1) in zip(CATS[i], BOXES, strict=False):
            points = "".join([f"<pt><x>{x}</x><y>{y}</y></pt>" for x, y in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))])
            objects += f"<object><name>{name}</name><deleted>0</deleted><polygon>{points}</polygon></object>"
        t.put(
            f"Annotations/users/img{i}.xml",
            f"<annotation><filename>img{i}.jpg</filename><folder>users</folder>{objects}</annotation>",
        )


@raw_layout(detection(3, CAT_BOXES), detection(2, CAT_BOXES), refusal=True)
def vott_csv(t: Tree) -> None:
    """VoTT's CSV export:

    vott-csv-export/project-export.csv ("image","xmin","ymin","xmax","ymax","label") next to images.
    """
    t.images("vott-csv-export/{}.jpg", range(3))
    rows = [
        f'"{i}.jpg",{x0}.0,{y0}.0,{x1}.0,{y1}.0,"{name}"'
        for i in range(3)
        for name, (x0, y0, x1, y1) in zip(CATS[i], BOXES, strict=False)
    ]
    t.lines("vott-csv-export/pets-export.csv", ['"image","xmin","ymin","xmax","ymax","label"', *rows])


def vott_asset(i: int) -> dict[str, object]:
    regions = [
        {
            "id": f"r{j}",
            "type": "RECTANGLE",
            "tags": [name],
            "boundingBox": {"height": y1 - y0, "width": x1 - x0, "left": x0, "top": y0},
            "points": [{"x": x0, "y": y0}, {"x": x1, "y": y0}, {"x": x1, "y": y1}, {"x": x0, "y": y1}],
        }
        for j, (name, (x0, y0, x1, y1)) in enumerate(zip(CATS[i], BOXES, strict=False))
    ]
    asset = {
        "format": "jpg",
        "id": f"a{i}",
        "name": f"{i}.jpg",
        "path": f"file:/data/{i}.jpg",
        "size": {"width": 16 + i, "height": 12 + i},
    }
    return {"asset": asset, "regions": regions, "version": "2.1.0"}


@raw_layout(detection(3, CAT_BOXES), refusal=True)
def vott_json(t: Tree) -> None:
    """VoTT's JSON export: vott-json-export/project-export.json with assets and regions, next to images."""
    t.images("vott-json-export/{}.jpg", range(3))
    tags = [{"name": "cat", "color": "#5db300"}, {"name": "dog", "color": "#e81123"}]
    t.json(
        "vott-json-export/pets-export.json",
        {"name": "pets", "tags": tags, "assets": {f"a{i}": vott_asset(i) for i in range(3)}},
    )


@raw_layout(detection(3, CAT_BOXES), refusal=True)
def supervisely(t: Tree) -> None:
    """Supervisely's documentation of projects: meta.json, dataset/{img/*.jpg,ann/*.jpg.json}."""
    t.json(
        "project/meta.json",
        {"classes": [{"title": "cat", "shape": "rectangle"}, {"title": "dog", "shape": "rectangle"}], "tags": []},
    )
    t.images("project/ds0/img/{}.jpg", range(3))
    for i in range(3):
        objects = [
            {
                "classTitle": name,
                "geometryType": "rectangle",
                "points": {"exterior": [[x0, y0], [x1, y1]], "interior": []},
                "tags": [],
            }
            for name, (x0, y0, x1, y1) in zip(CATS[i], BOXES, strict=False)
        ]
        t.json(
            f"project/ds0/ann/{i}.jpg.json",
            {"description": "", "tags": [], "size": {"height": 12 + i, "width": 16 + i}, "objects": objects},
        )


@raw_layout()
def label_studio_json(t: Tree) -> None:
    """Label Studio's JSON export: a list of tasks with annotations[].result[], images in media/upload."""
    t.images("media/upload/1/0a1b-{}.jpg", range(2))
    value = {"x": 6.25, "y": 16.67, "width": 50.0, "height": 50.0, "rotation": 0, "rectanglelabels": ["cat"]}
    result = {
        "original_width": 16,
        "original_height": 12,
        "image_rotation": 0,
        "value": value,
        "from_name": "label",
        "type": "rectanglelabels",
    }
    tasks = [
        {
            "id": i,
            "annotations": [{"id": i, "completed_by": 1, "result": [result]}],
            "data": {"image": f"/data/upload/1/0a1b-{i}.jpg"},
        }
        for i in range(2)
    ]
    t.json("project-1-at-2023-01-01.json", tasks)


@raw_layout(detection({"*": 3}, CAT_BOXES), detection({"*": 2}, CAT_BOXES), refusal=True)
def keras_retinanet_csv(t: Tree) -> None:
    """keras-retinanet's readme:

    annotations.csv without header (path,x1,y1,x2,y2,class), empty for no box; classes.csv.
    """
    t.images("images/{}.jpg", range(3))
    rows = [[f"images/{i}.jpg", *box, name] for i in range(3) for name, box in zip(CATS[i], BOXES, strict=False)]
    t.csv("annotations.csv", [*rows, ["images/2.jpg", "", "", "", "", ""]])
    t.csv("classes.csv", [["cat", 0], ["dog", 1]])


@raw_layout(detection({"*": 2}, {"*": 3}), detection({"*": 3}, {"*": 3}), refusal=True)
def global_wheat(t: Tree) -> None:
    """Kaggle's Global Wheat Detection: train.csv (image_id,width,height,bbox,source), train/*.jpg, test/*.jpg."""
    names = ("b6ab77fd7", "b53afdf5c", "f5a1f0358")
    t.images("train/{}.jpg", names)
    t.images("test/{}.jpg", ("aac893a91",))
    rows = [[names[0], 16, 12, "[1.0, 2.0, 8.0, 6.0]", "usask_1"]]
    rows += [
        [names[1], 17, 13, f"[{x0}.0, {y0}.0, {x1 - x0}.0, {y1 - y0}.0]", "usask_1"] for x0, y0, x1, y1 in BOXES[:2]
    ]
    t.csv("train.csv", [["image_id", "width", "height", "bbox", "source"], *rows])
    t.csv("sample_submission.csv", [["image_id", "PredictionString"], ["aac893a91", "1.0 0 0 50 50"]])


@raw_layout(detection({"train": 2, "val": 1}, {"object": 4}), refusal=True)
def sku110k(t: Tree) -> None:
    """SKU-110K:

    images/*.jpg, annotations/annotations_{train,val}.csv without header (name,x1,y1,x2,y2,class,width,height).
    """
    for split, count in (("train", 2), ("val", 1)):
        t.images(f"SKU110K_fixed/images/{split}_{{}}.jpg", range(count))
        rows = [[f"{split}_{i}.jpg", *box, "object", 16 + i, 12 + i] for i in range(count) for box in BOXES[: i + 1]]
        t.csv(f"SKU110K_fixed/annotations/annotations_{split}.csv", rows)


@raw_layout(detection({"train": 2, "val": 1}, {"car": 3, "person": 1}), refusal=True)
def bdd100k_detection(t: Tree) -> None:
    """doc.bdd100k.com: bdd100k/images/100k/{train,val}/*.jpg, bdd100k/labels/det_20/det_{train,val}.json (box2d)."""
    for split, count in (("train", 2), ("val", 1)):
        names = [f"0000f77c-{split}{i}.jpg" for i in range(count)]
        t.images(f"bdd100k/images/100k/{split}/{{}}", names)
        frames = [
            {
                "name": name,
                "attributes": {"weather": "clear"},
                "timestamp": 10000,
                "labels": [
                    {
                        "id": str(j),
                        "category": ("car", "person")[j],
                        "box2d": {"x1": x0, "y1": y0, "x2": x1, "y2": y1},
                    }
                    for j, (x0, y0, x1, y1) in enumerate(BOXES[: i + 1])
                ],
            }
            for i, name in enumerate(names)
        ]
        t.json(f"bdd100k/labels/det_20/det_{split}.json", frames)


@raw_layout(detection({"*": 3}, {"Bicycle": 2, "Boat": 1}), refusal=True)
def exdark(t: Tree) -> None:
    """ExDark's readme: ExDark/class/*.jpg, ExDark_Annno/class/*.jpg.txt (Piotr's bbGt format)."""
    for path in ("Bicycle/2015_00001", "Bicycle/2015_00002", "Boat/2015_01000"):
        t.image(f"ExDark/{path}.jpg")
        t.lines(
            f"ExDark_Annno/{path}.jpg.txt", ["% bbGt version=3", f"{path.partition('/')[0]} 1 2 8 6 0 0 0 0 0 0 0"]
        )


@raw_layout(detection(2, {"*": 3}), refusal=True)
def penn_fudan(t: Tree) -> None:
    """torchvision's object-detection tutorial:

    PennFudanPed/{PNGImages,PedMasks,Annotation}; masks number the people.
    """
    for i in range(2):
        stem = f"FudanPed0000{i + 1}"
        t.image(f"PennFudanPed/PNGImages/{stem}.png", i)
        t.mask(f"PennFudanPed/PedMasks/{stem}_mask.png", i, range(i + 2))
        lines = [
            f'Bounding box for object {j + 1} "PASpersonWalking" '
            f"(Xmin, Ymin) - (Xmax, Ymax) : ({x0}, {y0}) - ({x1}, {y1})"
            for j, (x0, y0, x1, y1) in enumerate(BOXES[: i + 1])
        ]
        t.lines(f"PennFudanPed/Annotation/{stem}.txt", ["# Compatible with PASCAL Annotation Version 1.00", *lines])
    t.put("PennFudanPed/readme.txt", "Penn-Fudan\n")


@raw_layout(detection({"*": 2}, {"stop": 2, "yield": 1}), refusal=True)
def lisa_signs(t: Tree) -> None:
    """LISA traffic signs: allAnnotations.csv (;) with "Upper left corner X" …, frames in folders."""
    names = ("aiua120214-0/frames/stop_1.png", "aiua120214-0/frames/stop_2.png")
    t.images("{}", names)
    head = [
        "Filename",
        "Annotation tag",
        "Upper left corner X",
        "Upper left corner Y",
        "Lower right corner X",
        "Lower right corner Y",
        "Occluded,On another road",
    ]
    rows = [
        [names[0], "stop", *BOXES[0], "0,0"],
        [names[1], "stop", *BOXES[0], "0,0"],
        [names[1], "yield", *BOXES[1], "0,0"],
    ]
    t.csv("allAnnotations.csv", [head, *rows], ";")


@raw_layout()
def fddb(t: Tree) -> None:
    """FDDB: originalPics/2002/07/19/big/img_1.jpg, FDDB-folds/FDDB-fold-01-ellipseList.txt (ellipses)."""
    names = ("2002/07/19/big/img_18", "2002/08/11/big/img_591")
    t.images("originalPics/{}.jpg", names)
    t.lines("FDDB-folds/FDDB-fold-01.txt", names)
    t.lines(
        "FDDB-folds/FDDB-fold-01-ellipseList.txt",
        [names[0], "1", "4.0 3.0 1.5 6.0 6.0  1", names[1], "1", "4.0 3.0 1.5 6.0 6.0  1"],
    )


@raw_layout(detection({"*": 2}, {"*": 3}), refusal=True)
def icdar_2015(t: Tree) -> None:
    """ICDAR 2015 task 4.1:

    ch4_training_images/img_1.jpg, ch4_training_localization_transcription_gt/gt_img_1.txt (BOM).
    """
    t.images("ch4_training_images/img_{}.jpg", (1, 2))
    for i in range(2):
        lines = [
            f"{corners(box).replace(' ', ',')},{word}"
            for box, word in zip(BOXES[: i + 1], ("Genaxis", "###"), strict=False)
        ]
        t.put(
            f"ch4_training_localization_transcription_gt/gt_img_{i + 1}.txt", "\ufeff" + "\r\n".join(lines) + "\r\n"
        )


@raw_layout(table({"*": 3}, {}), refusal=True)
def icdar_2013_words(t: Tree) -> None:
    """ICDAR 2013 word recognition: Challenge2_Training_Task3_Images_GT/word_1.png and gt.txt (name, "text")."""
    root = "Challenge2_Training_Task3_Images_GT/"
    t.images(root + "word_{}.png", (1, 2, 3))
    t.put(root + "gt.txt", '\ufeffword_1.png, "PROPER"\r\nword_2.png, "FOOD"\r\nword_3.png, "PRONTO"\r\n')


@raw_layout()
def nuscenes(t: Tree) -> None:
    """The nuScenes schema: v1.0-mini/*.json tables of a database, samples/CAM_FRONT/*.jpg, maps/*.png."""
    names = ("n015__CAM_FRONT__1", "n015__CAM_FRONT__2")
    t.images("samples/CAM_FRONT/{}.jpg", names)
    t.images("samples/CAM_BACK/{}.jpg", [name.replace("FRONT", "BACK") for name in names])
    t.image("maps/36092f0b03a857c6a3403e25b4b7aab3.png", 0, "L")
    t.json("v1.0-mini/sample.json", [{"token": "a1", "timestamp": 1, "prev": "", "next": "b1", "scene_token": "s1"}])
    t.json("v1.0-mini/category.json", [{"token": "c1", "name": "human.pedestrian.adult", "description": ""}])
    t.json(
        "v1.0-mini/sample_data.json",
        [{"token": "d1", "sample_token": "a1", "filename": f"samples/CAM_FRONT/{names[0]}.jpg"}],
    )


@raw_layout()
def tt100k(t: Tree) -> None:
    """Tsinghua-Tencent 100K: data/{train,test,other}/*.jpg, data/annotations.json (imgs by id, types)."""
    t.images("data/train/{}.jpg", (10056, 10057))
    t.images("data/test/{}.jpg", (10058,))
    imgs = {
        str(i): {
            "path": f"{split}/{i}.jpg",
            "id": i,
            "objects": [{"bbox": {"xmin": 1, "ymin": 2, "xmax": 9, "ymax": 8}, "category": "pl80"}],
        }
        for i, split in ((10056, "train"), (10057, "train"), (10058, "test"))
    }
    t.json("data/annotations.json", {"imgs": imgs, "types": ["pl80", "w9"]})


@raw_layout()
def visual_genome(t: Tree) -> None:
    """The Visual Genome page: VG_100K/*.jpg, image_data.json, objects.json, relationships.json."""
    t.images("VG_100K/{}.jpg", (1, 2))
    t.json(
        "image_data.json",
        [{"image_id": i, "url": f"https://x/VG_100K/{i}.jpg", "width": 15 + i, "height": 11 + i} for i in (1, 2)],
    )
    t.json(
        "objects.json",
        [
            {"image_id": i, "objects": [{"x": 1, "y": 2, "w": 8, "h": 6, "names": ["clock"], "object_id": i}]}
            for i in (1, 2)
        ],
    )


@raw_layout()
def mots_png(t: Tree) -> None:
    """MOTS: train/images/0002/*.png, train/instances/0002/*.png (16 bit: class and instance in one number)."""
    t.images("train/images/0002/{:06d}.png", range(2))
    t.masks("train/instances/0002/{:06d}.png", range(2), (0, 1005, 2001), "I;16")
    t.lines("train/instances/labels.txt", ["car", "pedestrian"])


@raw_layout(classification(3, {"cat": 1, "dog": 2}, layout="classification|table"), refusal=True)
def kaggle_image_csv(t: Tree) -> None:
    """Datumaro's documentation of Kaggle formats:

    images/*.jpg and ann.csv (image_name without extension, label_name).
    """
    t.images("images/{}.jpg", ("a", "b", "c"))
    t.csv("ann.csv", [["image_name", "label_name"], ["a", "dog"], ["b", "cat"], ["c", "dog"]])


@raw_layout(detection(2, CAT_BOXES), refusal=True)
def csv_boxes_of_tensorflow(t: Tree) -> None:
    """The CSV of TensorFlow's object-detection tutorials:

    images/{train,test}/, train_labels.csv (filename, …, ymax).
    """
    t.images("images/{}.jpg", range(2))
    rows = [
        [f"{i}.jpg", 16 + i, 12 + i, name, *box] for i in range(2) for name, box in zip(CATS[i], BOXES, strict=False)
    ]
    t.csv("labels.csv", [["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"], *rows])


# Layouts that people have, after no listing in particular.


@raw_layout(published=False)
def same_stem_texts_of_unknown_format(t: Tree) -> None:
    """Each image with a text file of numbers that is no known format."""
    for i in range(3):
        t.image(f"scene/{i:03d}.png", i)
        t.put(f"scene/{i:03d}.txt", "# pose\n0.1 0.2 0.3\n0.4 0.5 0.6\n0.7 0.8 0.9\n")


@raw_layout(published=False)
def same_stem_captions(t: Tree) -> None:
    """Each image with a caption in a text file, as for fine-tuning of diffusion models: 10_name/*.png, *.txt."""
    for i in range(3):
        t.image(f"img/10_sks dog/{i}.png", i)
        t.put(f"img/10_sks dog/{i}.txt", "a photo of sks dog\n")


@raw_layout(published=False)
def same_stem_json_of_unknown_format(t: Tree) -> None:
    """images/*.png with ann/*.json of somebody's own format."""
    for i in range(3):
        t.image(f"images/{i:03d}.png", i)
        t.json(f"ann/{i:03d}.json", {"objects": [{"kind": "bolt", "circle": [4, 4, 2]}]})


@raw_layout(published=False)
def same_stem_mat_files(t: Tree) -> None:
    """Images/*.jpg with GroundTruth/*.mat."""
    for i in range(3):
        t.image(f"Images/IMG_{i}.jpg", i)
        t.mat(f"GroundTruth/GT_IMG_{i}.mat", {"points": [[1, 2], [3, 4]]})
