"""Transforms of rows, for writing (`rk.write(…, transforms=…)`) and for reading (`split.transform(…)`)."""

from rekord.transforms.base import Bound, Learning, Lesson, Transform
from rekord.transforms.chain import Chain, chain
from rekord.transforms.hashing import hash_into, hash_words
from rekord.transforms.numbers import bucketize, one_hot
from rekord.transforms.numbers_cast import cast
from rekord.transforms.numbers_learned import standardize
from rekord.transforms.pictures import decode, encode, grayscale, normalize
from rekord.transforms.sizes import crop, resize
from rekord.transforms.tf_idf import tfidf
from rekord.transforms.tokens import tokenize
from rekord.transforms.vocabularies import vocabulary

__all__ = [
    "Bound",
    "Chain",
    "Learning",
    "Lesson",
    "Transform",
    "bucketize",
    "cast",
    "chain",
    "crop",
    "decode",
    "encode",
    "grayscale",
    "hash_into",
    "hash_words",
    "normalize",
    "one_hot",
    "resize",
    "standardize",
    "tfidf",
    "tokenize",
    "vocabulary",
]
