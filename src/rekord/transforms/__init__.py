"""Transforms of rows, for writing (`rk.write(…, transforms=…)`) and for reading (`split.transform(…)`)."""

from rekord.transforms.audio import mono, resample, spectrogram
from rekord.transforms.base import Bound, FitState, Learning, Transform
from rekord.transforms.chain import Chain, chain
from rekord.transforms.images import crop, decode, encode, grayscale, normalize, resize
from rekord.transforms.numeric import bucketize, cast, one_hot, standardize
from rekord.transforms.orient import orient, strip_metadata
from rekord.transforms.text import hash_into, hash_words, tfidf, tokenize
from rekord.transforms.vocabularies import vocabulary
from rekord.transforms.windows import window

__all__ = [
    "Bound", "Chain", "FitState", "Learning", "Transform", "bucketize", "cast", "chain", "crop", "decode",
    "encode", "grayscale", "hash_into", "hash_words", "mono", "normalize", "one_hot", "orient", "resample",
    "resize", "spectrogram", "standardize", "strip_metadata", "tfidf", "tokenize", "vocabulary", "window",
]  # fmt: skip
