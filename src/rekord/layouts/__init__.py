"""Well-known sets of keys, and how the rows of a source become them."""

from rekord.layouts.base import images
from rekord.layouts.classification import classification
from rekord.layouts.deeplab import deeplab
from rekord.layouts.detection import detection

__all__ = ["classification", "deeplab", "detection", "images"]
