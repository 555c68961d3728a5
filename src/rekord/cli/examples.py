"""How each verb is called, one or two times: the last lines of its help."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "write": (
        "rekord write photos/ data/flowers --split train=0.9,val=0.1",
        "rekord write --images photos/ --masks masks/ --classes 21 data/voc",
    ),
    "show": ("rekord show data/flowers -n 3",),
    "stats": ("rekord stats data/flowers --html flowers.html",),
    "query": ('rekord query data/flowers "select label, count(*) from records group by 1"',),
    "infer": ("rekord infer data/flowers -o schema.json",),
    "check": ("rekord check data/flowers --schema schema.json",),
    "doctor": ("rekord doctor data/flowers",),
    "salvage": ("rekord salvage data/damaged data/intact",),
    "diff": ("rekord diff data/old data/new --key filename",),
    "rewrite": (
        "rekord rewrite data/flowers data/large --shard-size 1GB --shuffle",
        'rekord rewrite data/flowers data/some --drop notes --where "label < 3"',
    ),
    "split": (
        "rekord split data/flowers data/new --split train=0.8,val=0.2 --stratify label",
        "rekord split data/flowers data/folds --folds 5",
    ),
    "balance": (
        "rekord balance data/flowers data/even --augment flip,crop,colour",
        "rekord balance data/flowers data/small --method undersample",
    ),
    "append": ("rekord append data/flowers data/more --from new-photos/",),
    "delete": ('rekord delete data/flowers data/fewer --where "width < 64"',),
    "relabel": (
        "rekord relabel data/flowers data/named --map-labels tulp=tulip",
        "rekord relabel data/flowers data/mended --from labels.csv --key filename",
    ),
    "export": ("rekord export data/flowers flowers.parquet --split train",),
    "index": ("rekord index data/flowers --format dali",),
    "reader": ("rekord reader data/flowers --for torch",),
    "train": (
        "rekord train data/flowers --epochs 10",
        "rekord train data/flowers flowers-model --resume",
    ),
    "demo": ("rekord demo tour",),
    "explain": ("rekord explain F102",),
}
