"""What protobuf says when a row cannot be put into an Example."""

from __future__ import annotations

from rekord.health.tf_known import Facts, Known, looks_like

_REKORD = "rekord write SOURCE OUT      (says the row, the column and the value)"
_NONE = "leave the key out where there is no value, or give a default"


def _into_bytes(facts: Facts) -> Facts:
    kind = facts["kind"]
    if kind == "NoneType":
        return {"code": "E301", "act": _NONE, "cause": "The row has None in this column."}
    if kind == "str":
        return {"code": "E302", "act": 'value.encode("utf-8")', "cause": "A text is no bytes in Python 3."}
    act = "array.tobytes() for raw bytes, tf.io.serialize_tensor(x).numpy(), or another list for numbers"
    if kind == "int":
        cause = (
            "Bytes were given bare, `value=b`, where a list is expected: `value=[b]`; or numbers were given."
        )
        return {"code": "E305", "act": "BytesList(value=[b]), with the brackets", "cause": cause}
    return {"code": "E302", "act": act, "cause": f"The value is a {kind}."}


def _into_integers(facts: Facts) -> Facts:
    kind = facts["kind"].rsplit(".", 1)[-1]
    if kind == "NoneType":
        return {"code": "E301", "act": _NONE, "cause": "The row has None in this column, such as a label."}
    if kind.startswith("float"):
        cause = "A float where whole numbers are stored: a label that pandas made a float, for one."
        return {"code": "E304", "act": "int(value), where it is whole; or FloatList", "cause": cause}
    if kind in ("str", "bytes"):
        cause = "A text, such as a class name, where a number is stored."
        return {"code": "E303", "act": "map names to numbers first, or use BytesList", "cause": cause}
    return {"code": "E302", "act": "array.ravel().tolist() for arrays", "cause": f"The value is a {kind}."}


def _into_floats(facts: Facts) -> Facts:
    return {
        **_into_integers(facts),
        "act": _NONE if facts["kind"] == "NoneType" else "float(value), or another list",
    }


def _of_type(facts: Facts) -> Facts:
    wanted, kind = facts["wanted"], facts["kind"]
    if kind == "NoneType":
        return {"code": "E301", "act": _NONE, "cause": "The row has None in this column, such as a label."}
    if kind in ("list", "ndarray", "tuple"):
        act = "array.ravel().tolist(), and the shape under a key of its own"
        return {"code": "E306", "act": act, "cause": "A list inside a list: records hold flat lists only."}
    if "bytes" in wanted:
        return _into_bytes(facts)
    return _into_integers(facts) if "int" in wanted else _into_floats(facts)


WRITE_MESSAGES = (
    Known(
        pattern=looks_like("expected bytes, {kind:word} found"),
        code="E302",
        title="a BytesList was given a {kind}",
        says="tf.train.BytesList takes a list of bytes.",
        how="{cause}",
        do=("{act}", _REKORD),
        refine=_into_bytes,
    ),
    Known(
        pattern=looks_like("'{kind:word}' object cannot be interpreted as an integer"),
        code="E302",
        title="an Int64List was given a {kind}",
        says="tf.train.Int64List takes a list of whole numbers.",
        how="{cause}",
        do=("{act}", _REKORD),
        refine=_into_integers,
    ),
    Known(
        pattern=looks_like("must be real number, not {kind:word}"),
        code="E302",
        title="a FloatList was given a {kind}",
        says="tf.train.FloatList takes a list of numbers.",
        how="{cause}",
        do=("{act}", _REKORD),
        refine=_into_floats,
    ),
    Known(
        pattern=looks_like(" has type {kind:word}, but expected one of: {wanted:word}"),
        code="E302",
        title="a list of {wanted} was given a {kind}",
        says="protobuf takes only {wanted} there.",
        how="{cause}",
        do=("{act}", _REKORD),
        refine=_of_type,
    ),
    Known(
        pattern=looks_like("must assign iterable"),
        code="E306",
        title="a bare value was given where a list is expected",
        says="The lists of an Example take a list: `value=[x]`, not `value=x`.",
        how="The brackets were left out for a scalar.",
        do=("tf.train.Int64List(value=[x])", _REKORD),
    ),
    Known(
        pattern=looks_like("only integer scalar arrays can be converted to a scalar index"),
        code="E306",
        title="an array of several dimensions was given to an Int64List",
        says="Records hold flat lists only.",
        how="A matrix was passed as it is.",
        do=("array.ravel().tolist(), and the shape under a key of its own", _REKORD),
    ),
    Known(
        pattern=looks_like("Value out of range: {found:n}"),
        code="E310",
        title="{found} does not fit int64",
        says="Records hold whole numbers of 64 bits with a sign.",
        how="An unsigned id or hash of 64 bits.",
        do=("store it as bytes, or as the same bits with a sign (numpy: x.view('int64'))", _REKORD),
    ),
    Known(
        pattern=looks_like("Parameter to initialize message field must be dict or instance of"),
        code="E302",
        title="a Feature was given a bare list",
        says="tf.train.Feature takes an Int64List, FloatList or BytesList.",
        how="`Feature(int64_list=[1])` in place of `Feature(int64_list=tf.train.Int64List(value=[1]))`.",
        do=("tf.train.Feature(int64_list=tf.train.Int64List(value=[x]))", _REKORD),
    ),
    Known(
        pattern=looks_like("Error parsing message"),
        code="W202",
        title="the bytes are not the message that they are read as",
        says="protobuf could not parse the payload.",
        how="A payload that is cut or damaged, or a record that is no Example.",
        do=("rekord check PATH      (says what the payloads are)", "rekord show PATH"),
    ),
)
