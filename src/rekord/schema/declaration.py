"""The checks of a whole declaration: what only shows when all columns are seen together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rekord.schema.base import Feature, checked_name
from rekord.schema.feature import Image, Mask, Payload
from rekord.schema.refuse import near_miss, refuse, shown


def checked_columns(columns: object, what: str) -> dict[str, Feature]:
    """Columns by name, each a feature, no two of them on one record key."""
    if not isinstance(columns, Mapping):
        raise refuse(
            "S115",
            f"{what} of a schema are given as a {type(columns).__name__}",
            expected="a mapping of column names to features",
            found=shown(columns),
            do='Schema({"label": Label(10)})',
        )
    checked: dict[str, Feature] = {}
    for name, feature in columns.items():
        checked[checked_name(name, "a column")] = _checked_feature(name, feature)
    _check_keys(checked)
    _check_masks(checked)
    return checked


def _checked_feature(name: str, feature: Any) -> Feature:
    if isinstance(feature, Feature) and type(feature) is not Feature:
        return feature
    forgotten = isinstance(feature, type) and issubclass(feature, Feature)
    raise refuse(
        "S111",
        f"`{name}` is declared as something that is no feature",
        column=name,
        expected="a feature, such as Int64(), Text() or Image()",
        found=shown(feature),
        do=f"{feature.__name__}(), with the brackets" if forgotten else "declare the column's type",
    )


def _check_keys(columns: Mapping[str, Feature]) -> None:
    owners: dict[str, str] = {}
    for name, feature in columns.items():
        for key in feature.record_keys(name):
            if key not in owners:
                owners[key] = name
                continue
            other = owners[key]
            raise refuse(
                "S112",
                f"`{name}` stores twice under one record key"
                if other == name
                else f"`{name}` and `{other}` are stored under one record key",
                column=name,
                expected="a record key of its own for each column",
                found=f"`{key}` for both",
                do=f'give `{name}` another key=, such as key="{name}_2"',
            )


def _check_masks(columns: Mapping[str, Feature]) -> None:
    images = [name for name, feature in columns.items() if isinstance(feature, Image)]
    for name, mask in columns.items():
        if not isinstance(mask, Mask) or mask.of in images:
            continue
        if mask.of is not None:
            meant = near_miss(mask.of, images)
            raise refuse(
                "S114",
                f"`{name}` is the mask of `{mask.of}`, which is no Image column",
                column=name,
                expected="of= naming an Image column" + (f": {', '.join(images[:5])}" if images else ""),
                found=f"of={shown(mask.of)}",
                do=f'of="{meant}"' if meant else "name the Image that the mask belongs to",
            )
        if len(images) != 1:
            raise refuse(
                "S114",
                f"`{name}` is a mask without an image of its own",
                column=name,
                expected="exactly one Image column, or of= naming one",
                found=f"{len(images)} Image columns" + (f": {', '.join(images[:5])}" if images else ""),
                do=f'Mask(of="{images[0]}", ...)' if images else "declare the Image of the mask",
            )


def check_groups(context: Mapping[str, Feature], steps: Mapping[str, Feature]) -> None:
    """A row is one mapping, so that context and steps share their names; steps know no default."""
    _check_payload(context, steps)
    for name, feature in steps.items():
        if name in context:
            raise refuse(
                "S113",
                f"`{name}` is in both context and steps",
                column=name,
                expected="one column of this name: a row has one value under it",
                found="two",
                do=f'rename one, keep its record key: "{name}_steps": {type(feature).__name__}(key="{name}")',
            )
        if feature.has_default:
            raise refuse(
                "S125",
                f"`{name}` is a step column with a default",
                column=name,
                expected="steps without defaults: no default says how many steps there are",
                found=f"default={shown(feature.default)}",
                do="optional=True keeps the hole",
            )


def _check_payload(context: Mapping[str, Feature], steps: Mapping[str, Feature]) -> None:
    """A column that is the whole payload leaves nothing for others."""
    columns = [*context.items(), *steps.items()]
    name = next((name for name, feature in columns if isinstance(feature, Payload)), None)
    if name is not None and (steps or len(columns) > 1):
        raise refuse(
            "S144",
            f"`{name}` is the whole payload, and the schema has other columns",
            column=name,
            expected="Payload() as the only column of a schema",
            found=f"{len(columns)} columns",
            do=f'Schema({{"{name}": Payload()}})',
        )
