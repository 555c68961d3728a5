"""Messages of TensorFlow and protobuf, recognised and explained."""

from __future__ import annotations

import textwrap

import pytest

from rekord.codes import CODES
from rekord.health.tensorflow.known_messages import MESSAGES, explain_message
from rekord.health.tensorflow.message_patterns import KnownMessage, compile_message_pattern

# (message, code, what the title says)
TABLE = [
    # files
    ("truncated record at 120' failed with Read less bytes than requested", "F104", "byte 120"),
    ("truncated record at 90' failed with EOF reached", "C202", "byte 90"),
    ("corrupted record at 1072", "F102", "byte 1,072"),
    ("corrupted record at 0", "F120", "does not start with a record, or"),
    ("corrupted record at 0 (Is this even a TFRecord file?)", "F120", "does not start with a record"),
    (
        "inflate() failed with error -3: incorrect header check",
        "H701",
        "does not have the compression the reader was given",
    ),
    ("inflate() failed with error -3: incorrect data check", "C204", "the compressed stream is corrupt"),
    ("inflate() failed with error -3: invalid distance too far back", "C201", "corrupt"),
    ("inflate() failed with error -5", "C201", "corrupt"),
    ("/data/train.tfrecord; No such file or directory", "X501", "does not exist"),
    ("/data; Is a directory", "X503", "a folder"),
    ("OutOfRangeError: End of sequence", "H703", "no more elements"),
    ("Your input ran out of data; interrupting training.", "H703", "ended before the epoch"),
    # batch parse_example
    (
        "Name: <unknown>, Key: label, Index: 0.  Data types don't match. Data type: string but expected type: float",
        "D403",
        "`label` is stored as string but read as float",
    ),
    # what a person may have kept of it
    ("Key: label. Data types don't match…", "D403", "`label` is read with a different type than it is stored"),
    (
        "Name: <unknown>, Key: x/y, Index: 7.  Data types don't match. Expected type: float, Actual type: int64",
        "D403",
        "`x/y` is stored as int64 but read as float",
    ),
    (
        "Name: n, Key: x, Index: 3.  Number of int64 values != expected.  Values size: 2 but output shape: [3]",
        "D402",
        "`x` has 2 values but is read with shape [3]",
    ),
    (
        "Name: n, Key: x, Index: 3.  Number of float values is not a multiple of stride length. "
        "Saw 5 values but output shape is: [?,2]",
        "D402",
        "`x` has 5 values, which do not fill rows of shape [?,2]",
    ),
    ("Name: n, Key: x, Index: 3.  Can't parse serialized Example.", "D402", "`x` has more byte strings"),
    (
        "Name: <unknown>, Feature: x (data type: float) is required but could not be found.",
        "D401",
        "`x` is required",
    ),
    # parse_single_example
    ("Key: x.  Can't parse serialized Example: Parsing int64_list failed.", "W202", "int64_list of `x` is corrupt"),
    (
        "Key: x.  Can't parse serialized Example: Parsing bytes_list failed.",
        "D402",
        "`x` has more byte strings",
    ),
    (
        "Key: label.  Data types don't match. Data type: string but expected type: float",
        "D403",
        "`label` is stored as string but read as float",
    ),
    (
        "Key: x.  Can't parse serialized Example: Some int64_list slice was not parsed.",
        "D402",
        "`x` does not have the number of values",
    ),
    (
        "Error while parsing feature with key x: number of elements should be divisible by 2, found 5 instead",
        "D402",
        "`x` has 5 values, which do not fill rows of 2",
    ),
    ("Feature: x (data type: float) is required but could not be found.", "D401", "`x` is required"),
    ("Could not parse example input, value: 'abc'", "H715", "not a tf.train.Example"),
    ("Unsupported datatype.", "H725", "starts with an unknown field"),
    # sequences
    (
        "Name: <unknown>, Feature list 'x' is required but could not be found.  Did you mean to include it in "
        "feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?",
        "D401",
        "list `x` is required",
    ),
    (
        "Name: <unknown>, Context feature: id.  Data types don't match. Expected type: int64",
        "D403",
        "`id` in the context",
    ),
    (
        "Name: <unknown>, Feature list: x, Index: 4.  Data types don't match. Expected type: int64",
        "D403",
        "`x` at step 4",
    ),
    (
        "Name: <unknown>, Key: x, Index: 4.  Number of values != expected.  values size: 3 but output shape: [2]",
        "D402",
        "`x` has a step of 3 values",
    ),
    (
        "Feature list 'x' has an unexpected number of values.  Total values size: 3 "
        "is not consistent with output shape: [?,2]",
        "D402",
        "have 3 values in total",
    ),
    ("Inconsistent max number of elements for feature x: expected 2, but found 3", "D402", "has 3 values"),
    ("Inconsistent max number of elements for feature x: expected 2, but found 0", "D401", "has 0 values"),
    ("Unexpected number of elements in example <unknown>", "D402", "does not have the number of values"),
    ("Invalid protocol message input, example id: <unknown>", "H715", "not a tf.train.SequenceExample"),
    # put together
    ("Number of elements in indices (1) and values (2) do not match", "D407", "1 indices and 2 values"),
    ("ValueError: Dimensions 1 and 2 are not compatible", "D407", "1 and 2 values"),
    ("Arguments to from_row_lengths do not form a valid RowPartition.", "D407", "partitions"),
    ("Arguments to _from_row_partition do not form a valid RaggedTensor", "D407", "partitions"),
    ("Unsupported: FixedLenSequenceFeature requires allow_missing to be True.", "S120", "allow_missing=True"),
    # later stages
    (
        "Input to reshape is a tensor with 49152 values, but the requested shape has 12288",
        "D406",
        "49152 values cannot be reshaped to 12288",
    ),
    (
        "Input to reshape is a tensor with 3 values, but the requested shape requires a multiple of 2",
        "D406",
        "3 values are not a multiple of 2",
    ),
    (
        "Input to DecodeRaw has length 5 that is not a multiple of 4, the size of float",
        "D406",
        "5 bytes are not a multiple of 4 bytes",
    ),
    (
        "DecodeRaw requires input strings to all be the same size, but element 1 has size 3 != 4",
        "D406",
        "raw bytes",
    ),
    ("Expects raw label data length 400, gets 100", "D406", "100 bytes, not 400"),
    ("Invalid JPEG data or crop window, data size 1", "H762", "JPEG is corrupt"),
    ("Invalid PNG data, size 54", "H762", "PNG is corrupt"),
    ("Not a JPEG file: starts with 0x89 0x50", "H764", "like a PNG"),
    ("Not a JPEG file: starts with 0x01 0x02", "H764", "like something else"),
    ("Unknown image file format. One of JPEG, PNG, GIF, BMP required.", "H763", "not an image"),
    ("Unable to decode bytes as JPEG, PNG, GIF, or BMP", "H763", "not an image"),
    ("Trying to decode BMP format using a wrong op.", "H764", "a BMP"),
    ("Input is empty.", "H760", "empty"),
    ("Type mismatch between parsed tensor (int32) and dtype (float)", "D406", "is int32 but read as float"),
    ("Could not parse `serialized` as TensorProto, base64: YWJj", "D406", "not a serialized tensor"),
    ("StringToNumberOp could not correctly convert string: cat", "D403", "text is not a number"),
    (
        "Received a label value of 21 which is outside the valid range of [0, 21).  Label values: 21",
        "H752",
        "label 21 is outside 0…21",
    ),
    (
        "assertion failed: [`labels` out of bound] [Condition x < y did not hold",
        "H767",
        "mask has values that are not class ids",
    ),
    # protobuf, new and old
    ("TypeError: expected bytes, str found", "E302", "BytesList was given a str"),
    ("TypeError: expected bytes, NoneType found", "E301", "given a NoneType"),
    ("TypeError: expected bytes, int found", "E305", "given a int"),
    ("TypeError: 'NoneType' object cannot be interpreted as an integer", "E301", "given a NoneType"),
    ("TypeError: 'float' object cannot be interpreted as an integer", "E304", "given a float"),
    ("TypeError: 'numpy.float64' object cannot be interpreted as an integer", "E304", "numpy.float64"),
    ("TypeError: 'str' object cannot be interpreted as an integer", "E303", "given a str"),
    ("TypeError: 'list' object cannot be interpreted as an integer", "E302", "given a list"),
    ("TypeError: must be real number, not str", "E303", "FloatList was given a str"),
    ("TypeError: must be real number, not NoneType", "E301", "given a NoneType"),
    ("TypeError: 'cat' has type str, but expected one of: bytes", "E302", "list of bytes was given a str"),
    ("TypeError: None has type NoneType, but expected one of: int, long", "E301", "given a NoneType"),
    ("TypeError: 1.5 has type float, but expected one of: int, long", "E304", "given a float"),
    ("TypeError: [0. 0.] has type ndarray, but expected one of: float", "E306", "given a ndarray"),
    ("TypeError: must assign iterable", "E306", "bare value"),
    ("only integer scalar arrays can be converted to a scalar index", "E306", "multidimensional array"),
    ("ValueError: Value out of range: 9223372036854775808", "E310", "does not fit int64"),
    (
        "TypeError: Parameter to initialize message field must be dict or instance of same class",
        "E302",
        "a bare list",
    ),
    (
        "google.protobuf.message.DecodeError: Error parsing message with type 'tensorflow.Example'",
        "W202",
        "cannot be parsed",
    ),
    # tf.data, Keras and the Object Detection API
    (
        "Cannot batch tensors with different shapes in component 0. First element had shape [220,195,3] and "
        "element 1 had shape [339,460,3].",
        "H758",
        "shapes [220,195,3] and [339,460,3]",
    ),
    (
        "Cannot batch tensors with different shapes in component 1. First element had shape [2,5] and element 1 "
        "had shape [3,5].",
        "H758",
        "shapes [2,5] and [3,5]",
    ),
    (
        "Cannot batch tensors with different shapes in component 0. First element had shape [40,40,3] and element 1 "
        "had shape [40,40,1].",
        "H738",
        "shapes [40,40,3] and [40,40,1]",
    ),
    (
        "Cannot add tensor to the batch: number of elements does not match. Shapes are: [tensor]: [810000], "
        "[batch]: [243712]",
        "H758",
        "shapes [243712] and [810000]",
    ),
    ("assertion failed: [maximum box coordinate value is larger than 1.100000: ] [1.15]", "H771", "1.100000: 1.15"),
    ("assertion failed: [maximum box coordinate value is larger than 1.010000: ] [447]", "E383", "1.010000: 447"),
    ("b'maximum box coordinate value is larger than 1.100000: '\n1.18", "H771", "1.100000: 1.18"),
    ("assertion failed: [maximum box coordinate value is too large] [1.2]", "H771", "too large"),
    ("slice index -1 of dimension 0 out of bounds.", "D402", "it has no value -1"),
    ("Expected size[0] in [0, 100], but got 109", "H758", "has 109 values, where at most 100"),
    ("indices[0] = 0 is not in [0, 0)", "D402", "index 0 is outside 0…0"),
    ("indices[3,7] = 30522 is not in [0, 30522)", "H750", "index 30522 is outside 0…30522"),
    ("Cast string to float is not supported", "D403", "text is cast to float"),
    (
        "Value for attr 'Tshape' of float is not in the list of allowed values: int32, int64",
        "D403",
        "float is used where",
    ),
    (
        "Value passed to parameter 'x' has DataType string not in list of allowed values: float32, float64",
        "D403",
        "string is used where",
    ),
    ("Failed to convert a NumPy array to a Tensor (Unsupported object type NoneType).", "E301", "(NoneType)"),
    ("Failed to convert a NumPy array to a Tensor (Unsupported object type list).", "E308", "(list)"),
    (
        "Attempt to convert a value (None) with an unsupported type (<class 'NoneType'>) to a Tensor.",
        "E301",
        "None cannot become a tensor",
    ),
    ("Tried to convert 'y' to a tensor and failed. Error: None values not supported.", "E301", "None cannot"),
    ("AttributeError: 'int' object has no attribute 'encode'", "E305", "int is encoded as text"),
    ("'utf-8' codec can't decode byte 0xff in position 0: invalid start byte", "E353", "bytes are read as text"),
    ("'utf-8' codec can't decode byte 0xe9 in position 3: invalid byte", "E353", "bytes are read as text"),
    ("Message tensorflow.Example exceeds maximum protobuf size of 2GB: 3000000000", "E327", "larger than 2 GB"),
    ("Cannot create a tensor proto whose content is larger than 2GB.", "E327", "larger than 2 GB"),
    ("A protocol message was rejected because it was too big (more than 67108864 bytes).", "E327", "larger than"),
    ("Expected image (JPEG, PNG, or GIF), got empty file", "H760", "image is empty"),
    ("Expected image (JPEG, PNG, or GIF), got unknown format starting with 'abc'", "H763", "not an image"),
    ("assertion failed: [Unable to decode bytes as JPEG, PNG, or GIF]", "H763", "not an image"),
    ("Summarized data: b'No files matched pattern: data/*.tfrecord'", "X501", "no file matches `data/*.tfrecord`"),
    ("loss : Tensor had NaN values", "H751", "NaN"),
    ("LossTensor is inf or nan. : tensor had Inf and NaN values", "H751", "Inf"),
    ("ERROR:tensorflow:Model diverged with loss = NaN.", "H751", "loss is NaN"),
    (
        "logits and labels must have the same first dimension, got logits shape [4,3] and labels shape [12]",
        "D402",
        "labels have shape [12], the model returns [4,3]",
    ),
    (
        "Argument `output` must have rank (ndim) `target.ndim - 1`. Received: target.shape=(4, 3), "
        "output.shape=(4, 3)",
        "D402",
        "labels have shape (4, 3)",
    ),
    (
        "Arguments `target` and `output` must have the same rank (ndim). Received: target.shape=(4,), "
        "output.shape=(4, 3)",
        "D402",
        "labels have shape (4,), the model returns (4, 3)",
    ),
    ("Shapes (None, 3, 2) and (None, 2) are incompatible", "D402", "shapes (None, 3, 2) and (None, 2)"),
    (
        "Input 0 of layer conv2d is incompatible with the layer: expected min_ndim=4, found ndim=3.",
        "D402",
        "model takes 4 dimensions, the data has 3",
    ),
    (
        "Expected shape (None, 8, 8, 3), but input has incompatible shape (8, 8, 3)",
        "D402",
        "model takes shape (None, 8, 8, 3)",
    ),
    ("as_list() is not defined on an unknown TensorShape.", "D406", "shape of a tensor is unknown"),
    ("Cannot take the length of shape with unknown rank.", "D406", "shape of a tensor is unknown"),
    ("'images' contains no shape.", "D406", "shape of an image is unknown"),
    ("its rank is undefined, but the layer requires a defined rank.", "D406", "shape of a tensor is unknown"),
    (
        "FIFOQueue '_1_batch/fifo_queue' is closed and has insufficient elements (requested 32, current size 0)",
        "H703",
        "0 of 32 records are left",
    ),
    (
        "'cat' has type <class 'str'>, but expected one of: ((<class 'bytes'>,),)",
        "E302",
        "list of bytes was given a str",
    ),
]


@pytest.mark.parametrize(("message", "code", "title"), TABLE)
def test_a_message_is_recognised_wherever_it_stands(message, code, title):
    around = (
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'
        "tensorflow.python.framework.errors_impl.InvalidArgumentError: {{function_node "
        "__wrapped__IteratorGetNext_output_types_1_device_/job:localhost}} Error in user-defined function passed "
        f"to MapDataset:1 transformation with iterator: Iterator::Root::ParallelMapV2: {message}\n"
        "\t [[{{node ParseSingleExample/ParseExample/ParseExampleV2}}]] [Op:IteratorGetNext] name: "
    )
    wrapped = message.replace("  ", " ").replace(" ", "\n", 1)
    coloured = f"\x1b[31m{around}\x1b[0m"
    quoted = "".join(f"> {line}\n" for line in textwrap.wrap(around, 70, break_long_words=False))
    framed = "".join(f"│ {line:<70} │\n" for line in textwrap.wrap(around, 70, break_long_words=False))
    for text in (message, around, wrapped, coloured, quoted, framed, f"{message} [Op:ParseExampleV2]"):
        explanation = explain_message(text)
        assert explanation is not None
        assert explanation.code == code
        assert title in explanation.title
        assert all([explanation.says, explanation.how, explanation.do])


def test_every_entry_of_the_table_is_met_by_a_message_above():
    met = set()
    for message, _, _ in TABLE:
        for known in MESSAGES:
            if known.explain(message) is not None:
                met |= {one for one in known.patterns if compile_message_pattern(one).search(message)}
                break
    never = {one for known in MESSAGES for one in known.patterns} - met
    # This one is said by versions of TensorFlow that give no more than the expected type.
    assert len(never) <= 1
    assert all("Expected" in pattern for pattern in never)


@pytest.mark.parametrize("known", MESSAGES, ids=lambda known: known.patterns[0][:40])
def test_an_explanation_has_a_command_that_confirms_it_and_a_fix(known: KnownMessage) -> None:
    assert any(line.startswith("rekord ") or ": rekord " in line for line in known.do) or known.code in (
        *("D406", "S120", "X503"),  # about the code of the reader alone
    )
    assert known.code in CODES


def test_every_code_of_the_table_is_registered():
    for _, code, _ in TABLE:
        assert code in CODES


def test_what_the_message_holds_comes_back_in_the_advice():
    found = explain_message("Key: score.  Data types don't match. Data type: string but expected type: float")
    assert found is not None
    assert found.says == "The record stores `score` as bytes_list; the FixedLenFeature in the spec reads tf.float32."
    assert '"score": tf.io.FixedLenFeature([], tf.string), and tf.strings.to_number(x) afterwards' in found.do[0]
    counted = explain_message(
        "Key: x, Index: 0.  Number of bytes values != expected.  Values size: 0 but output shape: []"
    )
    assert counted is not None
    assert '"x": tf.io.VarLenFeature(tf.string)' in counted.do[0]


@pytest.mark.parametrize(
    ("found", "wanted", "says"),
    [
        (
            49152,
            12288,
            "49,152 is 4 times 12,288: the bytes are probably float32 or int32, decoded as uint8.",
        ),
        (
            12288,
            98304,
            "98,304 is 8 times 12,288: the bytes are probably uint8, decoded as float64 or int64.",
        ),
        (10, 7, "The shape does not match the data."),
        (10, 0, "The shape does not match the data."),
    ],
)
def test_a_ratio_of_sizes_of_dtypes_is_seen(found, wanted, says):
    text = f"Input to reshape is a tensor with {found} values, but the requested shape has {wanted}"
    explanation = explain_message(text)
    assert explanation is not None
    assert explanation.how == says


def test_a_hostile_name_is_cleaned_and_cut():
    key = "\x07[31m`evil`" + "x" * 90
    found = explain_message(f"Key: {key}.  Data types don't match. Data type: string but expected type: float")
    assert found is not None
    assert "\x07" not in found.title
    assert found.title.startswith("`?[31m?evil?xxx")
    assert len(found.title) < 120
    braces = explain_message("Key: {code}{0}.  Data types don't match. Data type: string but expected type: float")
    assert braces is not None
    assert "`{code}{0}`" in braces.title


@pytest.mark.parametrize(
    "text",
    ["", "hello", "Key: " * 30_000, "Feature list '" * 20_000, "x" * 300_000, "Data types don't match."],
)
def test_a_text_that_holds_no_message_is_not_recognised(text):
    assert explain_message(text) is None


def test_of_a_long_text_the_end_is_read():
    assert explain_message("noise\n" * 100_000 + "corrupted record at 72").code == "F102"
