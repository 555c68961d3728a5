"""Messages of tf.data, Keras and the Object Detection API that are about the data."""

from __future__ import annotations

from rekord.health.tensorflow.message_patterns import KnownMessage, MessageFacts

_STATS = "rekord stats PATH      (sizes, numbers of values and labels)"
_SHOW = "rekord show PATH      (shows what is stored)"
_CHECK = "rekord check PATH      (names the record)"
_COUNT = "rekord check PATH      (counts the records)"
_READER = "rekord reader PATH --for tensorflow      (prints code with the shapes)"
_WRITE = "rekord write SOURCE OUT      (reports the row, column and value)"
_PADDED = "dataset.padded_batch(N), or dataset.ragged_batch(N)"
_CHANNELS = ("1", "2", "3", "4")


def _refine_shapes(facts: MessageFacts) -> MessageFacts:
    first, other = (facts[name].strip("[]").split(",") for name in ("first", "other"))
    if len(first) == len(other) == 3 and first[-1] in _CHANNELS and other[-1] in _CHANNELS:
        if first[-1] != other[-1]:
            return {
                "cause": f"Images with {first[-1]} and with {other[-1]} channels: grey, colour or transparent ones.",
                "act": "tf.io.decode_image(x, channels=3, expand_animations=False), then tf.image.resize",
                "code": "H738",
            }
        return {
            "cause": "Images of different sizes, which were not resized.",
            "act": "tf.image.resize(image, [H, W]) before batch(), or write them resized: --resize HxW",
        }
    return {
        "cause": "Lists of different lengths, such as boxes or tokens.",
        "act": f"{_PADDED} instead of batch(N)",
    }


def _refine_box(facts: MessageFacts) -> MessageFacts:
    value = facts.get("value")
    shown = "" if value is None else f": {value}"
    if value is not None and float(value) > 2:
        return {
            "shown": shown,
            "code": "E383",
            "cause": "Boxes in pixels, where the Object Detection API reads fractions of the width and height.",
        }
    cause = (
        "A box that ends outside its image: width and height swapped, an annotation for another size of the image, "
        "or an image that EXIF rotates."
    )
    return {"shown": shown, "cause": cause}


def _refine_indices(facts: MessageFacts) -> MessageFacts:
    if facts["low"] == facts["high"]:
        return {
            "code": "D402",
            "cause": "The list that is indexed is empty: an image without boxes, or a missing feature.",
        }
    return {"cause": "A label or token id that is not below the number of classes or words, or ids that start at 1."}


def _refine_unsupported(facts: MessageFacts) -> MessageFacts:
    if facts["kind"] == "NoneType":
        return {
            "code": "E301",
            "cause": "None in a column, or an image that could not be opened: cv2.imread returns None.",
        }
    return {"cause": "A list of lists or arrays of different lengths, which NumPy keeps as objects."}


def _refine_codec(facts: MessageFacts) -> MessageFacts:
    if facts["byte"] in ("0xff", "0x89"):
        image = "a JPEG" if facts["byte"] == "0xff" else "a PNG"
        return {
            "cause": f"The file is {image}, opened as text.",
            "act": 'open(path, "rb"), or tf.io.gfile.GFile(p, "rb")',
        }
    return {"cause": "The text has another encoding, such as Latin-1.", "act": 'open(path, encoding="latin-1")'}


PIPELINE_MESSAGES = (
    KnownMessage(
        pattern=(
            "Cannot batch tensors with different shapes in component {component:n}. First element had shape "
            "{first:shape} and element {number:n} had shape {other:shape}"
        ),
        code="H758",
        title="records of one batch have shapes {first} and {other}",
        says="batch() stacks tensors of equal shape only; component {component} is a column of the dataset.",
        how="{cause}",
        do=(_STATS, "{act}"),
        refine=_refine_shapes,
    ),
    KnownMessage(
        pattern=(
            "Cannot add tensor to the batch: number of elements does not match. Shapes are: [tensor]: {other:shape}, "
            "[batch]: {first:shape}"
        ),
        code="H758",
        title="records of one batch have shapes {first} and {other}",
        says="batch() stacks tensors of equal shape only.",
        how="{cause}",
        do=(_STATS, "{act}"),
        refine=_refine_shapes,
    ),
    KnownMessage(
        pattern="maximum box coordinate value is larger than {limit:number}: ({gap:gap}{value:number})?",
        code="H771",
        title="box coordinate is above {limit}{shown}",
        says="The Object Detection API expects boxes as fractions: 0 is the left or upper edge, 1 the other one.",
        how="{cause}",
        do=("rekord check PATH      (names the record and the box)", "rekord write SOURCE OUT --layout detection"),
        refine=_refine_box,
    ),
    KnownMessage(
        pattern="maximum box coordinate value is too large",
        code="H771",
        title="box coordinate is too large",
        says="The Object Detection API expects boxes as fractions: 0 is the left or upper edge, 1 the other one.",
        how="Boxes in pixels, or a box that ends outside its image.",
        do=("rekord check PATH      (names the record and the box)", "rekord write SOURCE OUT --layout detection"),
    ),
    KnownMessage(
        pattern="slice index {index:n} of dimension {dimension:n} out of bounds",
        code="D402",
        title="list is too short: it has no value {index}",
        says="x[{index}] was taken from a list that has fewer values, often from an empty one.",
        how="An image without objects, a missing feature with an empty default, or a list that varies in length.",
        do=(
            "rekord stats PATH      (the smallest number of values of each key)",
            "skip such records: dataset.filter(…)",
        ),
    ),
    KnownMessage(
        pattern="Expected size[{dimension:n}] in [0, {limit:n}], but got {found:n}",
        code="H758",
        title="list has {found} values, where at most {limit} are allowed",
        says="A slice of {found} values was taken from a tensor of {limit}.",
        how="More boxes in one image than max_number_of_boxes or max_boxes_to_draw in the pipeline configuration.",
        do=(_STATS, "raise max_number_of_boxes (train_config and input reader) to at least {found}"),
    ),
    KnownMessage(
        pattern="] = {found:n} is not in [{low:n}, {high:n})",
        code="H750",
        title="index {found} is outside {low}…{high}",
        says="tf.gather or an Embedding was given {found}, for a table of {high} entries.",
        how="{cause}",
        do=(_STATS, "give the layer as many entries as there are ids, or correct the ids"),
        refine=_refine_indices,
    ),
    KnownMessage(
        pattern="Cast string to {kind:word} is not supported",
        code="D403",
        title="text is cast to {kind}",
        says="tf.cast does not parse text.",
        how="A label or number that was stored as text, and is read as tf.string.",
        do=(
            "rekord stats PATH      (lists the texts)",
            "tf.strings.to_number(x) for numbers, tf.keras.layers.StringLookup for names",
            "or store class ids: rekord write SOURCE OUT",
        ),
    ),
    KnownMessage(
        pattern="Value for attr '{attr:word}' of {kind:word} is not in the list of allowed values",
        code="D403",
        title="{kind} is used where TensorFlow takes other types",
        says="The op needs another dtype for its argument {attr}: often integers for a shape, a size or a class id.",
        how="Heights, widths or labels that were stored as floats, or text that was not decoded.",
        do=(_STATS, "tf.cast(x, tf.int32) when reading, or repair the data: rekord rewrite IN OUT --cast KEY=int64"),
    ),
    KnownMessage(
        pattern="Value passed to parameter '{attr:word}' has DataType {kind:word} not in list of allowed values",
        code="D403",
        title="{kind} is used where TensorFlow takes other types",
        says="The op does not take {kind} for its argument {attr}.",
        how="Text or numbers that are stored with a different type than the reader assumes.",
        do=(_STATS, "tf.cast(x, dtype) when reading, or repair the data: rekord rewrite IN OUT --cast KEY=int64"),
    ),
    KnownMessage(
        pattern="(Unsupported object type {kind:word})",
        code="E308",
        title="array of Python objects ({kind}) cannot become a tensor",
        says="TensorFlow takes arrays of numbers, text or bytes.",
        how="{cause}",
        do=(_WRITE, "tf.ragged.constant(x) for lists of different lengths"),
        refine=_refine_unsupported,
    ),
    KnownMessage(
        pattern=(
            "Attempt to convert a value (None) with an unsupported type",
            "None values not supported.",
        ),
        code="E301",
        title="None cannot become a tensor",
        says="A value is None where TensorFlow needs a number, a text or an array.",
        how="A missing value, a parse function without `return`, or a dataset that yields no labels.",
        do=(_WRITE, "return (features, label) from the function that is mapped", _SHOW),
    ),
    KnownMessage(
        pattern="'{kind:word}' object has no attribute 'encode'",
        code="E305",
        title="{kind} is encoded as text",
        says="`.encode()` exists for text only; the value is a {kind}.",
        how="A class name such as 200 that pandas read as a number, or a missing one that it read as NaN.",
        do=("str(value).encode(), or pandas.read_csv(file, dtype=str)", _WRITE),
    ),
    KnownMessage(
        pattern="codec can't decode byte {byte:word} in position",
        code="E353",
        title="bytes are read as text",
        says="Python decodes text as UTF-8, and these bytes are not.",
        how="{cause}",
        do=("{act}", _WRITE),
        refine=_refine_codec,
    ),
    KnownMessage(
        pattern="exceeds maximum protobuf size of 2GB",
        code="E327",
        title="message is larger than 2 GB",
        says="protobuf cannot serialize more than 2 GB in one message.",
        how="All rows in one Example instead of one Example per row, or an array that needs to be split.",
        do=("write one Example per row", "rekord write SOURCE OUT      (one record per row, in shards)"),
    ),
    KnownMessage(
        pattern="Cannot create a tensor proto whose content is larger than 2GB",
        code="E327",
        title="tensor is larger than 2 GB",
        says="A constant of more than 2 GB does not fit into a graph.",
        how="A whole dataset in from_tensor_slices or tf.constant.",
        do=("rekord write SOURCE OUT      (then read the records)", "tf.data.TFRecordDataset(files)"),
    ),
    KnownMessage(
        pattern="A protocol message was rejected because it was too big",
        code="E327",
        title="message is larger than protobuf accepts",
        says="Old versions of protobuf reject messages above 64 MB.",
        how="Records of many megabytes, read by an old protobuf.",
        do=("pip install --upgrade protobuf", "rekord stats PATH      (the sizes of the records)"),
    ),
    KnownMessage(
        pattern="Expected image (JPEG, PNG, or GIF), got empty file",
        code="H760",
        title="image is empty",
        says="A decoder was given zero bytes.",
        how="A missing feature that defaults to an empty string, or an empty file that was written.",
        do=(_CHECK, "write the dataset again without that image"),
    ),
    KnownMessage(
        pattern="Expected image (JPEG, PNG, or GIF), got unknown format",
        code="H763",
        title="bytes are not an image",
        says="The first bytes are not those of a JPEG, PNG or GIF.",
        how="Raw pixels, a path instead of the file content, or an image that was encoded twice.",
        do=(_CHECK, "for raw pixels: tf.io.decode_raw(x, tf.uint8)"),
    ),
    KnownMessage(
        pattern="No files matched pattern: {key}'",
        code="X501",
        title="no file matches {name}",
        says="tf.data.Dataset.list_files found nothing.",
        how="The wrong folder or ending (.tfrecord, .tfrecords, .record), or a relative path from elsewhere.",
        do=("rekord check {quoted}", "ls -d {quoted}"),
    ),
    KnownMessage(
        pattern="Tensor had NaN values",
        code="H751",
        title="tensor has NaN values",
        says="A loss or gradient is not a number.",
        how="NaN in a feature, an empty or reversed box, a label outside the classes, or a learning rate too high.",
        do=("rekord check PATH      (finds NaN, bad boxes and labels)", _STATS),
    ),
    KnownMessage(
        pattern="tensor had Inf and NaN values",
        code="H751",
        title="tensor has Inf and NaN values",
        says="A loss or gradient is not a finite number.",
        how="NaN in a feature, an empty or reversed box, a label outside the classes, or a learning rate too high.",
        do=("rekord check PATH      (finds NaN, bad boxes and labels)", _STATS),
    ),
    KnownMessage(
        pattern="Model diverged with loss = NaN",
        code="H751",
        title="loss is NaN",
        says="Training ended because the loss is not a number.",
        how="NaN in a feature, an empty or reversed box, a label outside the classes, or a learning rate too high.",
        do=("rekord check PATH      (finds NaN, bad boxes and labels)", _STATS),
    ),
    KnownMessage(
        pattern=(
            "logits and labels must have the same first dimension, got logits shape {logits:shape} "
            "and labels shape {labels:shape}"
        ),
        code="D402",
        title="labels have shape {labels}, the model returns {logits}",
        says="Sparse losses take one class id per record.",
        how="Labels that are stored one-hot or as several values, or that were not batched like the images.",
        do=(_SHOW, "categorical_crossentropy for one-hot labels, or tf.argmax(label, -1)"),
    ),
    KnownMessage(
        pattern=(
            "Argument `output` must have rank (ndim) `target.ndim - 1`. Received: target.shape={target:tuple}, "
            "output.shape={output:tuple}"
        ),
        code="D402",
        title="labels have shape {target}, the model returns {output}",
        says="Sparse losses take one class id per record.",
        how="Labels that are stored one-hot or as several values.",
        do=(_SHOW, "CategoricalCrossentropy for one-hot labels, or tf.argmax(label, -1)"),
    ),
    KnownMessage(
        pattern=(
            "Arguments `target` and `output` must have the same {what:extent}. Received: "
            "target.shape={target:tuple}, output.shape={output:tuple}"
        ),
        code="D402",
        title="labels have shape {target}, the model returns {output}",
        says="This loss compares tensors of equal shape.",
        how="Class ids given to a loss for one-hot labels, or a model with another number of outputs.",
        do=(_STATS, "SparseCategoricalCrossentropy for class ids, or tf.one_hot(label, CLASSES)"),
    ),
    KnownMessage(
        pattern="Shapes {target:tuple} and {output:tuple} are incompatible",
        code="D402",
        title="shapes {target} and {output} do not match",
        says="Labels and the output of the model, or two tensors of the pipeline, differ in shape.",
        how="Class ids given to a loss for one-hot labels, one dimension too many, or a missing batch().",
        do=(_SHOW, "sparse_categorical_crossentropy for class ids; tf.squeeze(label) for one dimension too many"),
    ),
    KnownMessage(
        pattern="is incompatible with the layer: expected min_ndim={wanted:n}, found ndim={found:n}",
        code="D402",
        title="model takes {wanted} dimensions, the data has {found}",
        says="A layer was given tensors with {found} dimensions.",
        how="A dataset that was not batched, or images without a channel dimension.",
        do=("dataset.batch(32)", "tf.expand_dims(image, -1) for grey images", _SHOW),
    ),
    KnownMessage(
        pattern="Expected shape {wanted:tuple}, but input has incompatible shape {found:tuple}",
        code="D402",
        title="model takes shape {wanted}, the data has {found}",
        says="The input of the model and the records differ in shape.",
        how="A dataset that was not batched, images of another size, or images without a channel dimension.",
        do=("dataset.batch(32)", "tf.image.resize(image, [H, W])", _SHOW),
    ),
    KnownMessage(
        pattern=(
            "is not defined on an unknown TensorShape",
            "Cannot take the length of shape with unknown rank",
            "its rank is undefined, but the layer requires a defined rank",
        ),
        code="D406",
        title="shape of a tensor is unknown",
        says="parse_tensor, decode_image and py_function return tensors whose shape the graph does not know.",
        how="The shape is not stored in the graph; it needs to be set after decoding.",
        do=("x = tf.ensure_shape(x, [H, W, 3])", "tf.io.decode_image(x, expand_animations=False)", _READER),
    ),
    KnownMessage(
        pattern="'images' contains no shape",
        code="D406",
        title="shape of an image is unknown",
        says="decode_image may return an animation, so that its shape is unknown.",
        how="tf.image.resize after tf.io.decode_image.",
        do=("tf.io.decode_image(x, channels=3, expand_animations=False)", _READER),
    ),
    # Consequences of other errors, which may be in the same text.
    KnownMessage(
        pattern="is closed and has insufficient elements (requested {wanted:n}, current size {found:n})",
        code="H703",
        title="queue ended: {found} of {wanted} records are left",
        says="The threads that read the records ended before this batch.",
        how=(
            "An error in reading, which is further up in the log; an empty, missing or corrupt file; num_epochs "
            "reached; or local variables that were not initialized."
        ),
        do=(_COUNT, "the first error in the log: rekord explain - < train.log"),
    ),
)
