"""The registry: every code that rekord can say, with the one line that it says first.

The letter is the family and decides which error class is raised (`errors.error`). Each code has a page,
`docs/errors/<CODE>.md`, that `rekord explain CODE` shows. A code is never reused for another meaning.
"""

from __future__ import annotations

from importlib.resources import files

CODES: dict[str, str] = {
    # S1xx: schemas
    "S101": "a shape is not valid",
    "S102": "more than one dimension is unknown",
    "S103": "partitions do not fit their shape",
    "S104": "a dtype is not one that the type can hold",
    "S105": "a range is not valid",
    "S106": "a default does not fit its feature",
    "S107": "a feature is both optional and has a default",
    "S108": "the classes of a label cannot be told apart",
    "S109": "a column or a record key has no valid name",
    "S110": "an option of a schema has a value that it cannot take",
    "S111": "a column is declared as something that is no feature",
    "S112": "two columns are stored under one record key",
    "S113": "a name is in both context and steps",
    "S114": "a mask has no image that it belongs to",
    "S115": "a schema is not declared as one set of columns",
    "S116": "the schema has no such column",
    "S117": "this is not the JSON of a schema",
    "S118": "the JSON of a schema has an unknown member",
    "S119": "the JSON of a schema is of another version",
    "S120": "a tf.io spec cannot be expressed as a schema",
    "S121": "a schema cannot be expressed as a tf.io spec",
    "S122": "a schema.pbtxt cannot be parsed",
    "S123": "a schema.pbtxt says what a schema cannot express",
    "S124": "an optional feature is always empty",
    "S125": "a step column has a default",
    "S126": "there is nothing to infer a schema from",
    "S127": "a schema cannot be inferred: the payloads are no Examples",
    "S128": "there are too many distinct keys for a schema",
    "S129": "the values of a column are of several types",
    "S130": "the values of a column are of a type that no feature holds",
    "S131": "no one shape describes the values of a column",
    "S132": "a row is not a mapping of column names to values",
    # F1xx: the frames of a record file
    "F101": "length checksum does not match",
    "F102": "payload checksum does not match",
    "F103": "file ends inside a record's header",
    "F104": "file ends inside a record",
    "F105": "record claims an impossible length",
    # F11x and F12x: something else, where a record file was expected
    "F110": "this is a Git LFS pointer, not the file it stands for",
    "F111": "this is an HTML page, not a record file",
    "F112": "this is a Parquet file, not a record file",
    "F113": "this is a zip archive, not a record file",
    "F114": "this is a tar archive, not a record file",
    "F115": "this is an ArrayRecord file, not a TFRecord file",
    "F116": "this is a Riegeli file, not a TFRecord file",
    "F117": "this is an image, not a record file",
    "F118": "this is a text file, not a record file",
    "F119": "this is a file of another format, not a record file",
    "F120": "this does not begin with a record",
    # W2xx: protobuf's wire format inside a payload
    "W201": "a number runs past its end",
    "W202": "a length runs past the end of its message",
    "W203": "a field tag is not valid",
    "W204": "a group is not closed where it should be",
    "W205": "a feature name is not UTF-8",
    "W206": "packed floats do not fill whole values",
    "W207": "messages are nested too deeply",
    # C2xx: compression around the frames
    "C201": "compressed data is damaged",
    "C202": "compressed data ends early",
    "C203": "bytes follow the end of the compressed data",
    "C204": "checksum of the compressed data does not match",
    "C205": "compressed in a way that TFRecord readers do not take",
    # E3xx: rows
    "E301": "a required value is missing",
    "E302": "a value is of a type that the column cannot hold",
    "E303": "text or bytes where numbers are declared",
    "E304": "a float where whole numbers are declared",
    "E305": "numbers where text or bytes are declared",
    "E306": "a value has another shape than the schema says",
    "E307": "a value has another number of elements than the schema says",
    "E308": "the parts of a value have different shapes",
    "E309": "a row has a column that the schema lacks",
    "E310": "a whole number does not fit its dtype",
    "E311": "a number is out of its range",
    "E312": "NaN where a range is declared",
    "E313": "a finite number would become infinite",
    "E314": "a whole number would not survive as a float",
    "E315": "a number cannot be stored exactly",
    "E316": "a label has no class of this name",
    "E317": "a label is no class id",
    "E318": "a text is not UTF-8",
    "E320": "the indices of a sparse vector are not valid",
    "E321": "an image is not what the schema says",
    "E322": "an image is given as a str",
    "E323": "a mask is not one of class ids",
    "E324": "an array would change to become a tensor of the declared dtype",
    "E325": "a row is not a mapping",
    "E326": "the columns of a batch do not fit together",
    "E327": "a record is larger than 2 GiB",
    "E328": "an array into JPEG needs a quality",
    "E329": "the file of an image cannot be read",
    # E33x: pictures that are not whole, or not what they should be
    # E35x to E37x: rows of a source
    # D4xx: records that are not what the schema declares
    "D401": "a required feature is missing",
    "D402": "a feature has another number of values than the schema says",
    "D403": "a feature is stored as another kind than the schema says",
    "D404": "a text is not UTF-8",
    "D405": "a value does not fit the declared dtype",
    "D406": "bytes do not make a tensor of the declared dtype and shape",
    "D407": "the keys of one column do not belong together",
    "D408": "a key is not in the schema that was inferred",
    # X5xx: datasets and the places they live in
    "X501": "no such file or folder",
    "X502": "no record files here",
    "X503": "cannot be read",
    "X504": "cannot be written",
    "X505": "a set of shards is incomplete",
    "X506": "no such split",
    "X507": "the dataset has several splits",
    # X51x: writing a dataset
    # X52x and X53x: sources as a whole
    # U6xx: how rekord was called
    "U601": "command line not understood",
    "U602": "an optional dependency is missing",
    "U603": "no such error code",
    "U604": "not available yet",
    "U605": "an argument has a value that it cannot take",
    "U606": "no such record",
    "U607": "an iterator is used in another process than the one that made it",
    "U610": "a writer is used after it was closed",
    # U61x and U62x: what `write` was asked for
    # H7xx: findings about data that can be read
    "H701": "named as compressed, but it is not",
    "H702": "compressed, but its name does not say so",
    "H703": "file holds no records",
    "H711": "payloads are ExampleListWithContext",
    "H712": "payloads are tf.Event (a TensorBoard log)",
    "H713": "payloads are plain text",
    "H714": "payloads are another protobuf message",
    "H715": "payloads are of no known kind",
    "H716": "payload is of another kind than the rest of its file",
    "H721": "a list is stored in pieces: TensorFlow reads only the first",
    "H722": "a feature has two kinds: TensorFlow reads the first, protobuf the last",
    "H723": "a map entry is not one key and one value: TensorFlow refuses the record",
    "H724": "a key is stored twice: the last one counts",
    "H725": "fields that these messages do not have: TensorFlow may refuse the record",
    # H73x: remarks about pictures
}


def page(code: str) -> str | None:
    """The text of a code's page, or None where there is no such code."""
    if code not in CODES:
        return None
    return files("rekord").joinpath("error_pages").joinpath(f"{code}.md").read_text(encoding="utf-8")
