"""What records and datasets are held against, a rule a module."""

from __future__ import annotations

from rekord.health.rule import Rule
from rekord.health.rules.boxes import BoxRule, declared_boxes
from rekord.health.rules.majority import Learnt, learn
from rekord.health.rules.pictures import PictureRule, declared_pictures
from rekord.health.rules.records import SchemaRule
from rekord.health.rules.unlike import MajorityRule
from rekord.schema import Schema

__all__ = ["Learnt", "learn", "rules_for", "rules_without"]


def rules_for(schema: Schema, *, tfds: bool = False) -> list[Rule]:
    """The rules of records that a schema declares; `tfds` where TFDS wrote it, which labels the unknown -1."""
    rules: list[Rule] = [SchemaRule(schema, tfds=tfds)]
    pictures, boxes = declared_pictures(schema), declared_boxes(schema)
    if pictures:
        rules.append(PictureRule(lambda batch: pictures))
    if boxes:
        rules.append(BoxRule(lambda batch: boxes))
    return rules


def rules_without(learnt: Learnt) -> list[Rule]:
    """The rules of records that no schema declares: they are to be like most of the others."""
    return [MajorityRule(learnt), PictureRule(learnt.pictures), BoxRule(learnt.boxes)]
