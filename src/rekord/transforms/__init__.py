"""Transforms of rows, for writing (`rk.write(…, transforms=…)`) and for reading (`split.transform(…)`)."""

from rekord.transforms.base import Bound, Learning, Lesson, Transform
from rekord.transforms.chain import Chain, chain

__all__ = ["Bound", "Chain", "Learning", "Lesson", "Transform", "chain"]
