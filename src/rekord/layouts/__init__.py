"""Well-known sets of keys, and how the rows of a source become them."""

from rekord.layouts.classification import classification
from rekord.layouts.deeplab import deeplab
from rekord.layouts.detection import detection
from rekord.layouts.images import images

__all__ = ["classification", "deeplab", "detection", "images"]
