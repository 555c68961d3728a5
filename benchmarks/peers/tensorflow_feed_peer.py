"""TensorFlow feeding training loops from record files with tf.data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from peers.serve import Job, Task, serve
from peers.tensorflow_peer import counts, parsed, tf, total_of


def numpy(job: Job) -> Task:
    """Batches of NumPy arrays, strings as Python objects."""
    dataset = parsed(job.workload, job.options["way"])
    # Ragged columns have no batch dimension in NumPy.
    dense = next(column.name for column in job.workload.columns if None not in column.shape)
    digest = {name: total_of(value) for name, value in next(iter(dataset)).items()}
    return Task(lambda: counts(dataset.as_numpy_iterator(), lambda batch: len(batch[dense])), digest=digest)


def parse(job: Job) -> Task:
    """Batches of tensors."""
    options = job.options
    dataset = parsed(job.workload, options["way"], options.get("columns"), options["batch"])
    return consumed(dataset, job.workload.columns[0].name, graph=options["graph"])


def consumed(dataset: Any, first: str, *, graph: bool) -> Task:
    """A dataset taken batch by batch in Python, or to its end by one graph that only counts."""
    digest = {name: total_of(value) for name, value in next(iter(dataset)).items()}
    if not graph:
        return Task(lambda: counts(dataset, lambda batch: batch[first].shape[0]), digest=digest)

    def add(count: Any, batch: Any) -> Any:
        return count + tf.shape(batch[first], tf.int64)[0]

    def once() -> Iterator[int]:
        yield int(dataset.reduce(tf.constant(0, tf.int64), add))

    return Task(once, digest=digest)


def keras(job: Job) -> Task:
    """Epochs of `fit` over parsed batches."""
    dataset = parsed(job.workload, "autotune", ["dense", "label"], job.options["batch"])
    pairs = dataset.map(lambda batch: (batch["dense"], batch["label"]), num_parallel_calls=tf.data.AUTOTUNE)
    return fitted(pairs, job.workload.records)


def fitted(dataset: Any, records: int) -> Task:
    """Epochs of `fit` of one dense layer; the first one compiles it."""
    import keras as library

    model = library.Sequential([library.layers.Input((13,)), library.layers.Dense(1, activation="sigmoid")])
    model.compile("sgd", "binary_crossentropy")

    def once() -> Iterator[int]:
        model.fit(dataset, verbose=0)
        yield records

    batch = next(iter(dataset))
    digest = {"dense": total_of(batch[0]), "label": total_of(batch[1])}
    model.fit(dataset, verbose=0)
    return Task(once, digest=digest)


def images(job: Job) -> Task:
    """JPEGs decoded and resized in a parallel `map`."""
    options = job.options
    side, threads = options["side"], options["threads"]
    spec = {
        "image": tf.io.FixedLenFeature((), tf.string),
        "label": tf.io.FixedLenFeature((), tf.int64),
    }

    def decode(payload: Any) -> Any:
        row = tf.io.parse_single_example(payload, spec)
        image = tf.io.decode_jpeg(row["image"], channels=3)
        image = tf.image.resize(image, (side, side), antialias=options["antialias"])
        return {"image": image, "label": row["label"]}

    dataset = tf.data.TFRecordDataset(job.workload.shards()).map(decode, num_parallel_calls=threads)
    dataset = dataset.batch(options["batch"]).prefetch(2)
    pool = tf.data.Options()
    pool.threading.private_threadpool_size = threads
    pool.threading.max_intra_op_parallelism = 1
    dataset = dataset.with_options(pool)
    batch = next(iter(dataset))
    digest = {"label": total_of(batch["label"]), "values": float(tf.size(batch["image"]))}
    return Task(lambda: counts(dataset, lambda batch: batch["label"].shape[0]), digest=digest)


if __name__ == "__main__":
    serve({"numpy": numpy, "parse": parse, "keras": keras, "images": images}, f"TensorFlow {tf.__version__}")
