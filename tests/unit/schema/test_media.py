"""The types of audio and video: what they declare, and their forms in JSON, TFX, TFDS and tf specs."""

from __future__ import annotations

import numpy as np
import pytest

import rekord as rk
from rekord.schema.interop.tf_spec import spec_from_schema, to_source
from rekord.schema.interop.tfds import features_from_schema, schema_from_features


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: rk.Audio(format="pcm16"), "S151"),
        (lambda: rk.Audio(format="aac"), "S110"),
        (lambda: rk.Audio(rate=0), "S110"),
        (lambda: rk.Audio(channels=0), "S110"),
        (lambda: rk.Audio(default=b""), "S106"),
        (lambda: rk.Audio(default="text"), "S106"),
        (lambda: rk.Audio(format="pcm16", rate=8, default=[40_000]), "S106"),
        (lambda: rk.Video(format="wmv"), "S110"),
    ],
)
def test_an_invalid_declaration_is_refused(make, code) -> None:
    with pytest.raises(rk.SchemaError) as caught:
        make()
    assert caught.value.code == code


FEATURES = [
    rk.Audio(),
    rk.Audio(format="flac", rate=44_100, channels=2, key="audio/encoded"),
    rk.Audio(format="pcm16", rate=16_000, default=[1, -2]),
    rk.Audio(format="pcm_f32", rate=16_000, channels=2, default=[[0.5, 1.0]]),
    rk.Audio(default=b"RIFF"),
    rk.Video(format="webm", optional=True),
]


@pytest.mark.parametrize("feature", FEATURES, ids=repr)
def test_a_schema_keeps_what_is_declared(feature: rk.Audio | rk.Video) -> None:
    schema = rk.Schema({"x": feature})
    assert rk.Schema.from_json(schema.to_json()) == schema
    assert eval(repr(schema), {"Schema": rk.Schema, "Audio": rk.Audio, "Video": rk.Video}) == schema
    assert rk.Schema.from_pbtxt(schema.to_pbtxt())["x"].kind == "bytes"
    assert "tf.string" in to_source(spec_from_schema(schema))


def test_a_missing_value_is_the_default() -> None:
    schema = rk.Schema({"x": rk.Audio(format="pcm16", rate=8, default=[1, -2]), "y": rk.Audio(optional=True)})
    row = rk.decode(rk.encode({}, schema), schema)
    assert row["x"].tolist() == [1, -2]
    assert row["x"].dtype == np.int16
    assert row["y"] is None


def test_another_format_or_rate_is_a_change() -> None:
    def verdict(before: rk.Audio | rk.Video, after: rk.Audio | rk.Video) -> str:
        return rk.compat(rk.Schema({"x": before}), rk.Schema({"x": after})).verdict

    assert verdict(rk.Audio(rate=8000), rk.Audio()) == "widened"
    assert verdict(rk.Audio(rate=8000), rk.Audio(rate=16_000)) == "breaking"
    assert verdict(rk.Audio(), rk.Audio(format="pcm16", rate=8000)) == "breaking"
    assert verdict(rk.Video(format="mp4"), rk.Video()) == "widened"


def test_tfds_features_have_the_same_declarations() -> None:
    schema = rk.Schema(
        {
            "pcm": rk.Audio(format="pcm16", rate=16_000),
            "stereo": rk.Audio(format="pcm_f32", rate=8000, channels=2),
            "file": rk.Audio(format="flac"),
        }
    )
    assert schema_from_features(features_from_schema(schema)) == schema
    with pytest.raises(rk.UsageError) as caught:
        features_from_schema(rk.Schema({"v": rk.Video()}))
    assert caught.value.code == "U676"
    assert caught.value.location.feature == "v"
