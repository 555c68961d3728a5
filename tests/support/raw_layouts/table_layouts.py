"""Datasets of tables, text, sound, video and whatever is no image."""

from __future__ import annotations

import io
import json
import tarfile

import numpy as np
import pyarrow as pa

from raw_layouts import Reading, Tree, classification, raw_layout, table, text

IRIS = (
    "5.1,3.5,1.4,0.2,Iris-setosa",
    "7.0,3.2,4.7,1.4,Iris-versicolor",
    "6.3,3.3,6.0,2.5,Iris-virginica",
    "4.9,3.0,1.4,0.2,Iris-setosa",
)


def columns(count: int, records: int, labels: dict[str, int] | None = None) -> Reading:
    """A table without header: this number of columns, none of them named like a value."""
    return table({"*": records}, {"*": str(count)}, labels=labels)


@raw_layout(columns(5, 4, {"Iris-setosa": 2, "Iris-versicolor": 1, "Iris-virginica": 1}), refusal=True)
def iris_data(t: Tree) -> str:
    """UCI Iris: iris.data, comma-separated without a header, with an empty last line."""
    t.put("iris.data", "\n".join(IRIS) + "\n\n")
    return "iris.data"


@raw_layout(columns(5, 4, {"Iris-setosa": 2, "Iris-versicolor": 1, "Iris-virginica": 1}), refusal=True)
def iris_folder(t: Tree) -> None:
    """UCI Iris as unpacked: iris.data, iris.names, Index."""
    t.put("iris.data", "\n".join(IRIS) + "\n\n")
    t.put("iris.names", "1. Title: Iris Plants Database\n\n2. Sources:\n     (a) Creator: R.A. Fisher\n")
    t.put("Index", "Index of iris\n\n18 Mar 1996      105 Index\n")


@raw_layout(columns(9, 4))
def pima_diabetes(t: Tree) -> str:
    """pima-indians-diabetes.data.csv: nine columns of numbers without a header."""
    t.lines(
        "pima-indians-diabetes.data.csv",
        [
            "6,148,72,35,0,33.6,0.627,50,1",
            "1,85,66,29,0,26.6,0.351,31,0",
            "8,183,64,0,0,23.3,0.672,32,1",
            "1,89,66,23,94,28.1,0.167,21,0",
        ],
    )
    return "pima-indians-diabetes.data.csv"


ADULT = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, 2174, United-States, <=50K",
    "50, Self-emp-not-inc, 83311, Bachelors, 13, Married-civ-spouse, Exec-managerial, 0, United-States, <=50K",
    "38, ?, 215646, HS-grad, 9, Divorced, ?, 0, ?, >50K",
)


@raw_layout(columns(10, 3, {"<=50K": 2, ">50K": 1}), refusal=True)
def adult_data(t: Tree) -> str:
    """UCI Adult: adult.data, no header, a space after each comma, ? for unknown."""
    t.put("adult.data", "\n".join(ADULT) + "\n\n")
    return "adult.data"


@raw_layout()
def adult_folder(t: Tree) -> None:
    """UCI Adult as unpacked:

    adult.data, adult.test (first line |1x3 Cross validator, classes end in a dot), adult.names.
    """
    t.put("adult.data", "\n".join(ADULT) + "\n\n")
    t.put("adult.test", "|1x3 Cross validator\n" + "\n".join([f"{line}." for line in ADULT[:2]]) + "\n\n")
    t.put(
        "adult.names", "| This data was extracted from the census bureau database\n>50K, <=50K.\n\nage: continuous.\n"
    )
    t.put("old.adult.names", "1. Title: adult\n")


TITANIC_HEAD = "PassengerId,Survived,Pclass,Name,Sex,Age,SibSp,Parch,Ticket,Fare,Cabin,Embarked"
TITANIC = (
    '1,0,3,"Braund, Mr. Owen Harris",male,22,1,0,A/5 21171,7.25,,S',
    '2,1,1,"Cumings, Mrs. John Bradley (Florence Briggs Thayer)",female,38,1,0,PC 17599,71.2833,C85,C',
    '3,1,3,"Heikkinen, Miss. Laina",female,26,0,0,STON/O2. 3101282,7.925,,S',
    '6,0,3,"Moran, Mr. James",male,,0,0,330877,8.4583,,Q',
)


@raw_layout(
    table(
        4,
        {
            "Survived": "Int64|Label",
            "Name": "Text",
            "Age": "Int64|Float32",
            "Cabin": "Text",
            "Fare": "Float32|Tensor",
        },
    )
)
def titanic_train(t: Tree) -> str:
    """Kaggle's Titanic: train.csv with quoted commas and empty fields."""
    t.lines("train.csv", [TITANIC_HEAD, *TITANIC])
    return "train.csv"


@raw_layout()
def titanic_folder(t: Tree) -> None:
    """Kaggle's Titanic: train.csv, test.csv (no Survived), gender_submission.csv: three tables."""
    t.lines("train.csv", [TITANIC_HEAD, *TITANIC])
    t.lines(
        "test.csv", [TITANIC_HEAD.replace("Survived,", ""), '892,3,"Kelly, Mr. James",male,34.5,0,0,330911,7.8292,,Q']
    )
    t.csv("gender_submission.csv", [["PassengerId", "Survived"], [892, 0]])


@raw_layout(table(2, {"fixed acidity": "Float32|Tensor", "pH": "Float32|Tensor", "quality": "Int64|Label"}))
def wine_quality(t: Tree) -> str:
    """UCI Wine Quality: winequality-red.csv, semicolons, quoted header with spaces."""
    t.lines(
        "winequality-red.csv",
        ['"fixed acidity";"volatile acidity";"pH";"quality"', "7.4;0.7;3.51;5", "7.8;0.88;3.2;6"],
    )
    return "winequality-red.csv"


@raw_layout(table(2, {"Date Time": "Text|Timestamp", "p (mbar)": "Float32|Tensor", "wd (deg)": "Float32|Tensor"}))
def jena_climate(t: Tree) -> str:
    """jena_climate_2009_2016.csv of TensorFlow's time-series tutorial: dates as 01.01.2009 00:10:00."""
    t.lines(
        "jena_climate_2009_2016.csv",
        [
            '"Date Time","p (mbar)","T (degC)","wd (deg)"',
            "01.01.2009 00:10:00,996.52,-8.02,152.3",
            "01.01.2009 00:20:00,996.57,-8.41,136.1",
        ],
    )
    return "jena_climate_2009_2016.csv"


@raw_layout()
def movielens_1m(t: Tree) -> None:
    """MovieLens 1M: movies.dat, ratings.dat, users.dat, separated by ::, Latin-1."""
    t.put("ml-1m/movies.dat", "1::Toy Story (1995)::Animation\n2::Misérables, Les (1995)::Drama\n".encode("latin-1"))
    t.lines("ml-1m/ratings.dat", ["1::1193::5::978300760", "1::661::3::978302109"])
    t.lines("ml-1m/users.dat", ["1::F::1::10::48067"])
    t.put("ml-1m/README", "SUMMARY\n")


@raw_layout()
def movielens_100k(t: Tree) -> None:
    """MovieLens 100K: u.data (tabs), u.item and u.user (|), u.genre, u.info, README: several tables."""
    t.lines("ml-100k/u.data", ["196\t242\t3\t881250949", "186\t302\t3\t891717742"])
    t.put(
        "ml-100k/u.item",
        "1|Toy Story (1995)|01-Jan-1995||http://x|0|0\n542|Pôstman|1996||http://y|0|1\n".encode("latin-1"),
    )
    t.lines("ml-100k/u.user", ["1|24|M|technician|85711"])
    t.lines("ml-100k/u.info", ["943 users", "1682 items"])
    t.put("ml-100k/README", "SUMMARY\n")


@raw_layout(columns(4, 2), refusal=True)
def movielens_100k_ratings(t: Tree) -> str:
    """MovieLens 100K: the file u.data, four columns of integers between tabs, no header."""
    t.lines("u.data", ["196\t242\t3\t881250949", "186\t302\t3\t891717742"])
    return "u.data"


@raw_layout()
def movielens_latest(t: Tree) -> None:
    """MovieLens latest: ratings.csv, movies.csv, tags.csv, links.csv: tables with other columns each."""
    t.csv("ml-latest-small/ratings.csv", [["userId", "movieId", "rating", "timestamp"], [1, 1, 4.0, 964982703]])
    t.csv(
        "ml-latest-small/movies.csv", [["movieId", "title", "genres"], [1, "Toy Story (1995)", "Adventure|Animation"]]
    )
    t.csv("ml-latest-small/tags.csv", [["userId", "movieId", "tag", "timestamp"], [2, 60756, "funny", 1445714994]])
    t.csv("ml-latest-small/links.csv", [["movieId", "imdbId", "tmdbId"], [1, "0114709", 862]])
    t.put("ml-latest-small/README.txt", "Summary\n")


@raw_layout(columns(14, 3), refusal=True)
def boston_housing(t: Tree) -> str:
    """UCI Housing: housing.data, fourteen numbers between runs of spaces."""
    row = " 0.00632  18.00   2.310  0  0.5380  6.5750  65.20  4.0900   1  296.0  15.30 396.90   4.98  24.00"
    t.lines("housing.data", [row, row.replace("24.00", "21.60"), row.replace("24.00", "34.70")])
    return "housing.data"


@raw_layout(columns(9, 3), refusal=True)
def auto_mpg(t: Tree) -> str:
    """UCI Auto MPG: auto-mpg.data, runs of spaces, then a tab and a quoted name; ? for unknown."""
    t.lines(
        "auto-mpg.data",
        [
            f'18.0   8   307.0      {power}      3504.   12.0   70  1\t"{name}"'
            for power, name in (
                ("130.0", "chevrolet chevelle malibu"),
                ("?", "ford pinto"),
                ("150.0", "plymouth satellite"),
            )
        ],
    )
    return "auto-mpg.data"


@raw_layout(
    columns(3, 2), table(2, {"Date": "Text|Timestamp", "Global_active_power": "Float32|Tensor|Text"}), refusal=True
)
def household_power(t: Tree) -> str:
    """UCI household power: household_power_consumption.txt, semicolons, a header, ? for unknown."""
    t.lines(
        "household_power_consumption.txt",
        ["Date;Time;Global_active_power", "16/12/2006;17:24:00;4.216", "16/12/2006;17:25:00;?"],
    )
    return "household_power_consumption.txt"


MNIST_COLUMNS = ["label", *[f"pixel{i}" for i in range(1, 50)]]


@raw_layout(table({"train": 4, "test": 2}, {"label": "Int64|Label", "pixel1": "Int64"}), refusal=True)
def fashion_mnist_csv(t: Tree) -> None:
    """Kaggle's Fashion-MNIST:

    fashion-mnist_train.csv and fashion-mnist_test.csv (label, pixel1 …), next to IDX files.
    """
    for split, count in (("train", 4), ("test", 2)):
        rows = [[i % 3, *[(7 * i + j) % 256 for j in range(49)]] for i in range(count)]
        t.csv(f"fashion-mnist_{split}.csv", [MNIST_COLUMNS, *rows])


@raw_layout(
    table(3, {"emotion": "Int64|Label", "pixels": "Text", "Usage": "Text|Label"}),
    table({"*": 3}, {"emotion": "Int64|Label"}),
)
def fer2013(t: Tree) -> None:
    """Kaggle's FER-2013: fer2013/fer2013.csv (emotion, pixels as numbers between spaces, Usage)."""
    t.lines(
        "fer2013/fer2013.csv",
        [
            "emotion,pixels,Usage",
            "0,70 80 82 72,Training",
            "2,151 150 147 155,PublicTest",
            "4,231 212 156 164,PrivateTest",
        ],
    )
    t.put("fer2013/README", "FER-2013\n")


@raw_layout(text({"train": 4, "test": 2}, labels={"pos": 3, "neg": 3}), refusal=True)
def imdb_reviews(t: Tree) -> None:
    """aclImdb's README: {train,test}/{pos,neg}/0_9.txt, train/unsup, imdb.vocab, urls_pos.txt, labeledBow.feat."""
    for split, count in (("train", 2), ("test", 1)):
        for label in ("pos", "neg"):
            for i in range(count):
                t.put(
                    f"aclImdb/{split}/{label}/{i}_{9 if label == 'pos' else 2}.txt",
                    f"A {label} film, number {i}.<br />Really.",
                )
            t.lines(f"aclImdb/{split}/urls_{label}.txt", ["http://www.imdb.com/title/tt0453418/usercomments"])
        t.lines(f"aclImdb/{split}/labeledBow.feat", ["9 0:9 1:1"])
    t.put("aclImdb/train/unsup/0_0.txt", "Without a label.")
    t.lines("aclImdb/imdb.vocab", ["the", "and"])
    t.put("aclImdb/README", "Large Movie Review Dataset v1.0\n")


@raw_layout(text({"train": 2, "test": 2}, labels={"alt.atheism": 2, "sci.space": 2}), refusal=True)
def newsgroups(t: Tree) -> None:
    """20 Newsgroups by date: 20news-bydate-train/alt.atheism/49960: files without an extension."""
    for split in ("train", "test"):
        for group, number in (("alt.atheism", 49960), ("sci.space", 59848)):
            t.put(f"20news-bydate-{split}/{group}/{number}", f"From: a@b.c\nSubject: {group}\n\nText.\n")


@raw_layout()
def squad(t: Tree) -> None:
    """SQuAD: train-v1.1.json and dev-v1.1.json: data[].paragraphs[].qas[], one object a file."""
    answers = [{"answer_start": 0, "text": "Rekord"}]
    paragraph = {"context": "Rekord is a tool.", "qas": [{"id": "1", "question": "What is it?", "answers": answers}]}
    for split in ("train", "dev"):
        t.json(f"{split}-v1.1.json", {"data": [{"title": "Tool", "paragraphs": [paragraph]}], "version": "1.1"})


@raw_layout(table({"train": 3, "test": 2}, {"*": "3"}), refusal=True)
def ag_news(t: Tree) -> None:
    """Zhang's AG News: ag_news_csv/{train,test}.csv without header ("class","title","description"), classes.txt."""
    for split, count in (("train", 3), ("test", 2)):
        t.lines(
            f"ag_news_csv/{split}.csv",
            [f'"{i % 4 + 1}","Title {i}","Text, with a comma ({split})"' for i in range(count)],
        )
    t.lines("ag_news_csv/classes.txt", ["World", "Sports", "Business", "Sci/Tech"])
    t.put("ag_news_csv/readme.txt", "AG's News Topic Classification Dataset\n")


@raw_layout(text({"train": 3, "val": 2, "test": 1}), refusal=True)
def penn_treebank(t: Tree) -> None:
    """Mikolov's PTB: data/ptb.train.txt, ptb.valid.txt, ptb.test.txt: a sentence a line."""
    for split, count in (("train", 3), ("valid", 2), ("test", 1)):
        t.lines(f"data/ptb.{split}.txt", [f" {split} sentence <unk> number {i} " for i in range(count)])


@raw_layout(columns(2, 3, {"ham": 2, "spam": 1}), refusal=True)
def sms_spam(t: Tree) -> None:
    """UCI SMS Spam Collection: SMSSpamCollection (label, tab, text; no extension, no header), readme."""
    t.lines(
        "SMSSpamCollection",
        ["ham\tGo until jurong point, crazy..", "spam\tFree entry in 2 a wkly comp", "ham\tOk lar..."],
    )
    t.put("readme", "SMS Spam Collection v.1\n")


@raw_layout()
def multi30k(t: Tree) -> None:
    """Multi30k: train.en and train.de, a sentence a line, in the same order."""
    for split in ("train", "val"):
        t.lines(f"{split}.en", ["Two men.", "A dog."])
        t.lines(f"{split}.de", ["Zwei Männer.", "Ein Hund."])


@raw_layout(table({"train": 2, "val": 1}, {"prompt": "Text", "completion": "Text"}), refusal=True)
def jsonl_splits(t: Tree) -> None:
    """Hugging Face's documentation of data files: train.jsonl and validation.jsonl."""
    for split, count in (("train", 2), ("validation", 1)):
        t.lines(f"{split}.jsonl", [json.dumps({"prompt": f"q{i}", "completion": f"a{i}"}) for i in range(count)])


ESC_HEAD = ["filename", "fold", "target", "category", "esc10", "src_file", "take"]


@raw_layout(
    table({"*": 3}, {"category": "Text|Label"}, labels={"dog": 2, "rooster": 1}, unused=("audio",)),
    table({"*": 3}, {"filename": "Audio", "category": "Text|Label"}),
    refusal=True,
)
def esc_50(t: Tree) -> None:
    """karolpiczak/ESC-50: audio/1-100032-A-0.wav, meta/esc50.csv (filename, fold, target, category, …)."""
    names = ("1-100032-A-0.wav", "1-100038-A-14.wav", "1-100210-A-0.wav")
    for name in names:
        t.wav(f"ESC-50-master/audio/{name}")
    rows = [[name, 1, 0, "dog" if "-0.wav" in name else "rooster", True, 100032, "A"] for name in names]
    t.csv("ESC-50-master/meta/esc50.csv", [ESC_HEAD, *rows])
    t.put("ESC-50-master/README.md", "# ESC-50\n")
    t.put("ESC-50-master/LICENSE", "CC\n")


@raw_layout(table(5, labels={"_background_noise_": 1, "no": 2, "yes": 2}, unused=("*.txt",)))
def speech_commands(t: Tree) -> None:
    """Speech Commands v0.02: yes/*.wav, no/*.wav, _background_noise_/, testing_list.txt, validation_list.txt."""
    for word in ("yes", "no"):
        for i in range(2):
            t.wav(f"{word}/0a7c2a8d_nohash_{i}.wav")
    t.wav("_background_noise_/pink_noise.wav")
    t.lines("testing_list.txt", ["yes/0a7c2a8d_nohash_1.wav"])
    t.lines("validation_list.txt", ["no/0a7c2a8d_nohash_1.wav"])
    t.put("README.md", "# Speech Commands\n")
    t.put("LICENSE", "CC\n")


@raw_layout()
def librispeech(t: Tree) -> None:
    """The LibriSpeech README: dev-clean/84/121123/84-121123-0000.flac, 84-121123.trans.txt, SPEAKERS.TXT."""
    root = "LibriSpeech/dev-clean/84/121123/84-121123"
    for i in range(2):
        t.put(f"{root}-000{i}.flac", b"fLaC" + bytes(38))
    t.lines(f"{root}.trans.txt", ["84-121123-0000 GO DO YOU HEAR", "84-121123-0001 BUT IN LESS THAN FIVE MINUTES"])
    t.lines("LibriSpeech/SPEAKERS.TXT", [";ID  |SEX| SUBSET", "84   | F | dev-clean        |  8.02 | Christie Nowak"])
    t.put("LibriSpeech/README.TXT", "LibriSpeech\n")


@raw_layout()
def gtzan(t: Tree) -> None:
    """Kaggle's GTZAN: Data/genres_original/blues/*.wav, Data/images_original/blues/*.png, features_30_sec.csv."""
    for genre in ("blues", "rock"):
        for i in range(2):
            t.wav(f"Data/genres_original/{genre}/{genre}.0000{i}.wav")
            t.image(f"Data/images_original/{genre}/{genre}0000{i}.png", i)
    t.csv(
        "Data/features_30_sec.csv",
        [["filename", "length", "tempo", "label"], ["blues.00000.wav", 661794, 123.04, "blues"]],
    )


@raw_layout(table({"*": 2}, {"class": "Text|Label"}, unused=("audio",)), refusal=True)
def urbansound8k(t: Tree) -> None:
    """UrbanSound8K: audio/fold1/*.wav, metadata/UrbanSound8K.csv (slice_file_name, …, class)."""
    names = ("101415-3-0-2.wav", "102106-3-0-0.wav")
    for name in names:
        t.wav(f"UrbanSound8K/audio/fold1/{name}")
    rows = [[name, name.partition("-")[0], 0.0, 0.3, 1, 1, 3, "dog_bark"] for name in names]
    t.csv(
        "UrbanSound8K/metadata/UrbanSound8K.csv",
        [["slice_file_name", "fsID", "start", "end", "salience", "fold", "classID", "class"], *rows],
    )
    t.put("UrbanSound8K/UrbanSound8K_README.txt", "UrbanSound8K\n")


@raw_layout()
def ljspeech(t: Tree) -> None:
    """LJ Speech: wavs/LJ001-0001.wav, metadata.csv (id|text|normalised text, no header, quotes are text)."""
    for i in (1, 2):
        t.wav(f"LJSpeech-1.1/wavs/LJ001-000{i}.wav")
    t.lines(
        "LJSpeech-1.1/metadata.csv",
        [
            'LJ001-0001|Printing, in the "only" sense|Printing, in the "only" sense',
            "LJ001-0002|in being comparatively modern.|in being comparatively modern.",
        ],
    )
    t.put("LJSpeech-1.1/README", "LJ Speech\n")


@raw_layout()
def ucf101(t: Tree) -> None:
    """torchvision.datasets.UCF101: UCF-101/class/*.avi, ucfTrainTestlist/{classInd,trainlist01,testlist01}.txt."""
    for name in ("ApplyEyeMakeup", "YoYo"):
        for i in (1, 2):
            t.video(f"UCF-101/{name}/v_{name}_g0{i}_c01.avi")
    t.lines("ucfTrainTestlist/classInd.txt", ["1 ApplyEyeMakeup", "2 YoYo"])
    t.lines(
        "ucfTrainTestlist/trainlist01.txt",
        ["ApplyEyeMakeup/v_ApplyEyeMakeup_g01_c01.avi 1", "YoYo/v_YoYo_g01_c01.avi 2"],
    )
    t.lines("ucfTrainTestlist/testlist01.txt", ["YoYo/v_YoYo_g02_c01.avi"])


@raw_layout()
def kinetics(t: Tree) -> None:
    """torchvision.datasets.Kinetics: {train,val}/class with spaces/id_000001_000011.mp4, annotations/train.csv."""
    for split in ("train", "val"):
        t.video(f"kinetics400/{split}/abseiling/0347ZoDXyP0_000095_000105.mp4")
        t.video(f"kinetics400/{split}/riding a bike/1C6oK1nLLlg_000002_000012.mp4")
        t.csv(
            f"kinetics400/annotations/{split}.csv",
            [
                ["label", "youtube_id", "time_start", "time_end", "split"],
                ["abseiling", "0347ZoDXyP0", 95, 105, split],
            ],
        )


@raw_layout(table({"*": 3}, {"steering": "Float32|Int64|Tensor", "center": "Text|Image"}), refusal=True)
def udacity_driving(t: Tree) -> None:
    """Udacity's behavioural cloning data:

    driving_log.csv (center,left,right,steering,throttle,brake,speed), IMG/*.jpg.
    """
    rows = []
    for i in range(3):
        names = [f"IMG/{side}_2016_12_01_13_30_48_{i}.jpg" for side in ("center", "left", "right")]
        for name in names:
            t.image(f"data/{name}", i)
        rows.append([names[0], f" {names[1]}", f" {names[2]}", f" {0.05 * i}", " 0", " 0", " 22.1"])
    t.csv("data/driving_log.csv", [["center", "left", "right", "steering", "throttle", "brake", "speed"], *rows])


@raw_layout()
def modelnet40(t: Tree) -> None:
    """ModelNet40: class/{train,test}/airplane_0001.off: meshes."""
    for name in ("airplane", "bathtub"):
        for split in ("train", "test"):
            t.put(f"ModelNet40/{name}/{split}/{name}_0001.off", "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n")


@raw_layout()
def quick_draw(t: Tree) -> None:
    """Quick, Draw! as numpy_bitmap:

    a .npy file a class (airplane.npy, cat.npy) of n × 784 bytes; the name is the class.
    """
    for i, name in enumerate(("airplane", "cat")):
        made = io.BytesIO()
        np.save(made, np.full((3, 784), i, np.uint8))
        t.put(f"{name}.npy", made.getvalue())


@raw_layout(
    classification({"train": 3, "test": 2}, {"0": 2, "1": 2, "2": 1}, layout="classification|table"), refusal=True
)
def mnist_npz(t: Tree) -> str:
    """Keras's mnist.npz: x_train, y_train, x_test, y_test."""
    made = io.BytesIO()
    images = np.zeros((3, 28, 28), np.uint8)
    np.savez(
        made,
        x_train=images,
        y_train=np.arange(3, dtype=np.uint8),
        x_test=images[:2],
        y_test=np.arange(2, dtype=np.uint8),
    )
    t.put("mnist.npz", made.getvalue())
    return "mnist.npz"


@raw_layout()
def dicom_series(t: Tree) -> None:
    """RSNA pneumonia detection:

    stage_2_train_images/*.dcm, stage_2_train_labels.csv (patientId,x,y,width,height,Target).
    """
    for name in ("0004cfab", "00313ee0"):
        t.put(f"stage_2_train_images/{name}.dcm", bytes(128) + b"DICM")
    t.csv(
        "stage_2_train_labels.csv",
        [
            ["patientId", "x", "y", "width", "height", "Target"],
            ["0004cfab", "", "", "", "", 0],
            ["00313ee0", 264.0, 152.0, 213.0, 379.0, 1],
        ],
    )
    t.csv("stage_2_detailed_class_info.csv", [["patientId", "class"], ["0004cfab", "No Lung Opacity"]])


@raw_layout()
def patch_camelyon(t: Tree) -> None:
    """PatchCamelyon: camelyonpatch_level_2_split_train_x.h5, …_y.h5, …_meta.csv."""
    for part in ("x", "y"):
        t.put(f"camelyonpatch_level_2_split_train_{part}.h5", b"\x89HDF\r\n\x1a\n" + bytes(40))
    t.csv(
        "camelyonpatch_level_2_split_train_meta.csv",
        [["coord_y", "coord_x", "tumor_patch", "wsi"], [1, 2, False, "camelyon16_train_normal_033"]],
    )


@raw_layout()
def lsun_lmdb(t: Tree) -> None:
    """LSUN: bedroom_train_lmdb/{data,lock}.mdb."""
    for split in ("train", "val"):
        t.put(f"bedroom_{split}_lmdb/data.mdb", bytes(64))
        t.put(f"bedroom_{split}_lmdb/lock.mdb", bytes(64))


@raw_layout(classification({"*": 4}, {"0": 2, "1": 2}, layout="classification|table"), refusal=True)
def webdataset(t: Tree) -> str:
    """WebDataset's documentation: dataset-000000.tar with sample.jpg and sample.cls."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for i in range(4):
            t.image(f"{i:06d}.jpg", i)
            for name, data in (
                (f"{i:06d}.jpg", (t.root / f"{i:06d}.jpg").read_bytes()),
                (f"{i:06d}.cls", str(i % 2).encode()),
            ):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
            (t.root / f"{i:06d}.jpg").unlink()
    t.put("dataset-000000.tar", made.getvalue())
    return "dataset-000000.tar"


@raw_layout(text({"train": 2}), refusal=True)
def hugging_face_saved(t: Tree) -> None:
    """Hugging Face's save_to_disk:

    dataset_dict.json, train/{data-00000-of-00001.arrow,dataset_info.json,state.json}.
    """
    t.json("dataset_dict.json", {"splits": ["train"]})
    made = io.BytesIO()
    rows = pa.table({"text": ["a sentence", "another"]})
    with pa.ipc.new_stream(made, rows.schema) as stream:
        stream.write_table(rows)
    t.put("train/data-00000-of-00001.arrow", made.getvalue())
    t.json("train/dataset_info.json", {"features": {"text": {"dtype": "string", "_type": "Value"}}})
    t.json("train/state.json", {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": None})


# Layouts that people have, after no listing in particular.


@raw_layout(table(3, {"id": "Int64", "price": "Float32|Tensor|Text", "city": "Text"}), published=False)
def csv_of_a_spreadsheet(t: Tree) -> str:
    """A German spreadsheet's CSV: semicolons, decimal commas, a byte-order mark."""
    t.put("preise.csv", "\ufeffid;price;city\r\n1;3,50;Köln\r\n2;12,95;Bonn\r\n3;0,10;Ulm\r\n")
    return "preise.csv"


@raw_layout(published=False)
def two_unrelated_tables(t: Tree) -> None:
    """customers.csv and orders.csv with different columns."""
    t.csv("customers.csv", [["id", "name"], [1, "Ann"], [2, "Bob"]])
    t.csv("orders.csv", [["order", "customer", "total"], [10, 1, 9.5]])


@raw_layout(
    table({"train": 3, "val": 1, "test": 1}, {"x": "Float32|Tensor", "y": "Int64|Label"}),
    refusal=True,
    published=False,
)
def csv_splits(t: Tree) -> None:
    """train.csv, val.csv and test.csv with the same columns."""
    for split, count in (("train", 3), ("val", 1), ("test", 1)):
        t.csv(f"{split}.csv", [["x", "y"], *[[i + 0.5, i % 2] for i in range(count)]])


@raw_layout(published=False)
def documents(t: Tree) -> None:
    """A folder of PDF and Word files."""
    t.put("report.pdf", b"%PDF-1.4\n")
    t.put("notes.docx", b"PK\3\4")
    t.put("table.xlsx", b"PK\3\4")


@raw_layout(published=False)
def source_code(t: Tree) -> None:
    """A folder of Python files with a README: no dataset."""
    t.put("train.py", "print('hello')\n")
    t.put("model/net.py", "x = 1\n")
    t.put("README.md", "# Code\n")
    t.put("requirements.txt", "numpy\ntorch\n")
