"""A user's own files: four formats give the same examples; columns and labels are found or refused; keys."""

import gzip
import json

import numpy as np
import pytest
from helpers import check_done, make_config, review_columns, tiny_overrides, write_parquet

from isobench.common.errors import UserError
from isobench.data.own_task import check_files
from isobench.data.tables import read_own_file
from isobench.kinds.classification.examples import are_hidden, read_examples
from isobench.runs.identity import identify
from isobench.runs.validate import validate_config

ODD_TEXTS = ["a, b", 'she said "no"', "null", "NA", "1e5", "2021-01-01", "é ü 漢", " padded "]
STARS = [1, 2, 3, 1, 2, 3, 1, 2]


def quote(text):
    return '"' + text.replace('"', '""') + '"'


def write(file, texts, labels, names=("review", "stars")):
    rows = list(zip(texts, labels, strict=True))
    if file.suffix in (".csv", ".tsv"):
        rows = [(text, str(label).lower() if isinstance(label, bool) else label) for text, label in rows]
    match file.suffix:
        case ".csv":
            lines = [",".join(names), *(f"{quote(text)},{label}" for text, label in rows)]
        case ".tsv":
            lines = ["\t".join(names), *(f"{text}\t{label}" for text, label in rows)]
        case ".jsonl":
            lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
        case ".parquet":
            write_parquet(file, dict(zip(names, (texts, labels), strict=True)))
            return file
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def configure(train, dev=None, *overrides):
    cfg = make_config("task=mine", f"data.files={{train: {train}, validation: {dev or train}}}", *overrides)
    validate_config(cfg)
    return cfg


def read(cfg, split="train"):
    return read_examples(cfg.task, cfg.data, split)


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_every_format_gives_the_same_examples(tmp_path, ending):
    cfg = configure(write(tmp_path / f"train.{ending}", ODD_TEXTS, STARS))
    assert (cfg.task.text, cfg.task.label, cfg.task.labels) == (["review"], "stars", ["1", "2", "3"])
    assert (list(cfg.task.metrics), cfg.task.primary) == (["accuracy", "matthews"], "accuracy")
    examples = read(cfg)
    assert examples.texts == [ODD_TEXTS]
    assert examples.labels.tolist() == [star - 1 for star in STARS]


@pytest.mark.parametrize(
    ("labels", "classes", "numbers"),
    [
        (["yes", "no"] * 2, ["no", "yes"], [1, 0] * 2), (["007", "010"] * 2, ["007", "010"], [0, 1] * 2),
        (["\u0661", "\u0662"] * 2, ["\u0661", "\u0662"], [0, 1] * 2),  # digits, but not ours
        (["0e1", "1"] * 2, ["0e1", "1"], [0, 1] * 2), ([10, 2] * 2, ["2", "10"], [1, 0] * 2),
        ([True, False] * 2, ["false", "true"], [1, 0] * 2), ([1.0, 0.0] * 2, ["0", "1"], [1, 0] * 2),
        ([0.5, 1, 2], None, [0.5, 1, 2]), (list(range(21)), None, list(range(21))),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_labels_are_classes_or_scores(tmp_path, labels, classes, numbers, ending):
    texts = [f"text {number}" for number in range(len(labels))]
    cfg = configure(write(tmp_path / f"train.{ending}", texts, labels))
    assert cfg.task.labels == classes
    assert cfg.task.primary == ("pearson" if classes is None else "accuracy")
    examples = read(cfg)
    assert examples.labels.tolist() == pytest.approx(numbers)
    assert examples.labels.dtype == (np.float32 if classes is None else np.int64)


def test_what_is_named_is_not_looked_for(tmp_path):
    train = write(tmp_path / "train.csv", ["a", "b", "c"], [1, 2, 1])
    scores = configure(train, None, "task.label_range=[1,5]")
    assert (scores.task.labels, read(scores).labels.tolist()) == (None, [1, 2, 1])
    assert configure(train, None, "task.metrics=[spearman]").task.primary == "spearman"
    named = configure(train, None, "task.labels=[2,1]", "task.primary=f1")
    assert (named.task.metrics, read(named).labels.tolist()) == (["f1", "accuracy", "matthews"], [1, 0, 1])


def test_classes_may_stand_by_number_unless_a_class_is_called_by_one(tmp_path):
    train = write(tmp_path / "train.csv", ["a", "b"], [1, 0])
    assert read(configure(train, None, "task.labels=[negative,positive]")).labels.tolist() == [1, 0]
    with pytest.raises(UserError):
        read(configure(train, None, "task.labels=[1,2]"))
    assert read(configure(train, None, "task.labels=['0.0','1.0']")).labels.tolist() == [1, 0]
    train = write(tmp_path / "zeros.csv", ["a", "b"], ["002", "001"])
    assert read(configure(train, None, "task.labels=['001','002']")).labels.tolist() == [1, 0]


def test_columns_are_found_among_others(tmp_path):
    columns = {"id": ["x1", "x2"] * 2, "Question1": ["a", "b"] * 2, "question2": ["c", "d"] * 2}
    write_parquet(tmp_path / "train.parquet", columns | {"Target": ["u", "v"] * 2})
    task = configure(tmp_path / "train.parquet").task
    assert (task.text, task.label) == (["Question1", "question2"], "Target")
    write_parquet(tmp_path / "other.parquet", {"text": ["a", "b"] * 2, "opinion": ["u", "v"] * 2})
    assert configure(tmp_path / "other.parquet", None, "task.label=opinion").task.text == ["text"]
    with pytest.raises(UserError):
        configure(tmp_path / "other.parquet")


GOOD_TEXT = "text,label\na,u\nb,v\nc,u\nd,v\n"
BAD = {
    "two texts": "title,body,label\na,b,u\nc,d,v\n", "two labels": "text,label,class\na,b,c\n",
    "one name twice": "text,text,label\na,b,u\n", "a row too short": "text,label\na,u\nb\n",
    "a row too long": "text,label\na,u,w\n", "one class": "text,label\na,u\nb,u\n",
    "a row without label": "text,label\na,u\nb,\nc,v\n", "a row without text": "text,label\na,u\n ,v\nc,u\n,v\n",
    "a row without second text": "text1,text2,label\na,,u\nc,d,v\na,b,u\nd,e,v\n",
    "nan": "text,label\na,1\nb,nan\nc,0\n", "1_0": "text,label\na,1\nb,1_0\nc,0\n",
    "no rows": "text,label\n", "empty": "",
    "infinity": "text,label\n" + "".join(f"t,{n / 3}\nt,-inf\n" for n in range(30)),
    "a word among numbers": "text,label\na,0\nb,1\nc,pos\nd,0\n",
    "decimal commas": 'text,label\na,"1,5"\nb,"2,5"\n', "thousands": 'text,label\na,"1,000"\nb,"2,500"\n',
    "letters of another size": "text,label\na,Pos\nb,pos\nc,neg\n" * 2,
    "an accent of two forms": "text,label\na,\xe9\nb,e\u0301\n" * 2,
    "another way to write a number": "text,label\na,007\nb,7\nc,8\n" * 2,
    "an invisible letter": "text,label\na,pos\nb,pos\u200b\n" * 2,
    "a hyphen": "text,label\na,not-entail\nb,not_entail\nc,entail\n" * 2,
    "-1 beside 0": "text,label\na,-1\nb,0\nc,1\n" * 2, "a class of one row": f"{GOOD_TEXT}e,w\n",
    "a quote escaped by a backslash": 'text,label\n"a \\"b\\" c",u\nd,v\n',
    "a text behind its quote": 'text,label\n"a" b,u\nc,v\n', "a header that is not closed": f'"{GOOD_TEXT}',
}  # fmt: skip
BAD_JSON = {
    "a mapping": '{"text": {"en": "a"}, "label": "u"}\n{"text": {"en": "b"}, "label": "v"}\n' * 2,
    "a name twice": '{"text": "a", "label": 0, "label": 1}',
    "texts and numbers": '{"text": "a", "label": "u"}\n{"text": "b", "label": 1}',
    "a large number": '{"text": "a", "label": 1}\n{"text": "b", "label": 123456789012345678901}',
    "several labels": '{"text": "a", "label": ["u"]}\n{"text": "b", "label": ["u", "v"]}\n' * 2,
    "another encoding": b'{"text": "caf\xe9", "label": "u"}',
}  # fmt: skip


@pytest.mark.parametrize("fault", [*BAD, *BAD_JSON])
def test_what_is_not_clear_is_refused(tmp_path, fault):
    file = tmp_path / ("train.csv" if fault in BAD else "train.jsonl")
    named = [] if fault in BAD else ["data.encoding=latin-1"]  # JSON is in UTF-8, whatever is named
    good = GOOD_TEXT if fault in BAD else '{"text": "caf\xe9", "label": "u"}\n{"text": "b", "label": "v"}\n' * 2
    (tmp_path / f"good{file.suffix}").write_text(good)
    assert len(read(configure(tmp_path / f"good{file.suffix}", None, *named))) == 4
    content = (BAD | BAD_JSON)[fault]
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError):
        configure(file, None, *named)


@pytest.mark.parametrize(("separator", "encoding"), [(";", "utf-8"), (";", "utf-8-sig"), ("\t", "utf-16")])
def test_a_csv_may_be_as_spreadsheets_write_it(tmp_path, separator, encoding):
    rows = [("text", "label"), ("gr\xfc\xdfe", "u"), ("b", "v"), ("c", "u"), ('"d, e"', "v")]
    first = ["sep=;"] * (encoding == "utf-8-sig")  # Excel's first line
    (tmp_path / "train.csv").write_text("\n".join([*first, *map(separator.join, rows)]), encoding=encoding)
    assert read(configure(tmp_path / "train.csv")).texts == [["gr\xfc\xdfe", "b", "c", "d, e"]]


@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("windows-1251", "фильм плохо хорошо кот"), ("koi8-r", "фильм плохо хорошо кот"),
        ("gb18030", "今年的收入 人工智能 联通 好"), ("latin-1", "grüße straße né à"), ("utf-16-le", "a b c d"),
        ("iso2022_jp", "これは文です 猫 悪い d"),
    ],
)  # fmt: skip
def test_an_encoding_is_utf8_or_named_and_never_guessed(tmp_path, ending, encoding, words):
    separator, words = "," if ending == "csv" else "\t", words.split()
    rows = [separator.join(row) for row in zip(["text", *words], ["label", *"uvuv"], strict=True)]
    file = tmp_path / f"train.{ending}"
    file.write_bytes("\n".join(rows).encode(encoding))
    with pytest.raises(UserError):
        configure(file)
    assert read(configure(file, None, f"data.encoding={encoding}")).texts == [words]
    other = write(tmp_path / f"utf8.{ending}", ["é", "猫", "кот"], ["u", "v", "u"], ("text", "label"))
    with pytest.raises(UserError):  # a file in UTF-8 beside it
        read(configure(file, other, f"data.encoding={encoding}"), "validation")


@pytest.mark.parametrize("share", [0.03, 0.5, 0.97])
@pytest.mark.parametrize("encoding", ["windows-1252", "latin-1", "windows-1251", "koi8-r"])
def test_a_file_in_two_encodings_is_refused_whatever_is_named(tmp_path, encoding, share):
    text = "пример" if encoding in ("windows-1251", "koi8-r") else "größer"
    rows = [f"{text} {row},{row % 2}\n" for row in range(40)]
    cut = max(1, round(share * 40))
    content = "".join(rows[:cut]).encode() + "".join(rows[cut:]).encode(encoding)
    (tmp_path / "train.csv").write_bytes(b"text,label\n" + content)
    for overrides in ([], [f"data.encoding={encoding}"]):
        with pytest.raises(UserError):
            configure(tmp_path / "train.csv", None, *overrides)


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (b"text,label\n" + 2 * "“quoted”,u\nb,v\n".encode("windows-1252"), ["latin-1"]),
        (b"text,label\n" + 2 * "模 word,u\nb,v\n".encode("gbk"), ["gbk"]),  # these bytes are UTF-8 too
        (b"\xff\xfe" + GOOD_TEXT.encode("utf-16-le"), ["windows-1252"]),
        (GOOD_TEXT.encode("utf-16-le"), [None, "latin-1"]), (GOOD_TEXT.encode("utf-32"), [None, "latin-1"]),
        (gzip.compress(GOOD_TEXT.encode(), mtime=0), [None, "latin-1"]),
        (GOOD_TEXT.encode(), ["hex", "rot13", "idna", "utf_8x"]),
    ],
)  # fmt: skip
def test_a_name_that_is_not_the_encoding_is_refused_where_the_bytes_tell(tmp_path, content, names):
    (tmp_path / "train.csv").write_bytes(content)
    for name in names:
        with pytest.raises(UserError):
            configure(tmp_path / "train.csv", None, *([f"data.encoding={name}"] if name else []))


def test_the_same_bytes_in_two_encodings_have_two_keys(tmp_path):
    file = tmp_path / "train.csv"
    file.write_bytes("text,label\nя,u\nж,v\nщ,u\nэ,v\n".encode("windows-1251"))
    names = ("windows-1251", "cp1251", "latin-1")
    keys = [identify(configure(file, None, f"data.encoding={name}")).key for name in names]
    assert keys[0] == keys[1] != keys[2]
    file.write_text(GOOD_TEXT)
    assert identify(configure(file)).key == identify(configure(file, None, "data.encoding=null")).key


OPENED = {
    "to the end": ["label,text", *["pos,a", "neg,b"] * 2, 'neg,"c', "pos,d", "neg,e"],
    "in a label": ["text,label", *["a,pos", "b,neg"] * 2, 'c,"neg', "d,pos", 'e,neg"'],
    "with commas": ["text,label", *['"a, b",pos', '"c, d",neg'] * 2, '"e, f,pos', "e, f,neg", 'g, h",pos'],
    "one row lost": ["text;label", *["a;pos", "b;neg"] * 2, '"c;neg', 'd";pos'],
    "blank lines between": ["text,label", *["a,pos", "b,neg"] * 2, '"c,neg', "", "d,pos", "", 'e",neg'],
    "scores that differ": ["text,label", "a,0.5", "b,1.5", "c,2.5", "d,3.5", '"e,4.5', 'f",5.5', "g,6.5"],
    "one column": ["text", *"abcd", '"e', "f", 'g"'],
    "a label between texts": ["text1,label,text2", *["a,pos,b", "c,neg,d"] * 2, 'e,pos,"f', 'g,neg,h"'],
    "a class that no other row has": ["text,label", *["a,pos", "b,neg"] * 2, '"c,neg', "d,new", "e,pos", 'f",neg'],
    "in a pair with ids": ["id,a,b,label", *["1,x,y,u", "2,z,w,v"] * 2, '7,"p,q,u', '8,r",s,v'],
}  # fmt: skip


@pytest.mark.parametrize("place", OPENED)
def test_a_quote_may_not_be_open_wherever_it_stands(tmp_path, place):
    (tmp_path / "train.csv").write_text("\n".join(OPENED[place]) + "\n")
    with pytest.raises(UserError, match="(row 5|line 6)[:,]"):
        read_own_file(tmp_path / "train.csv")


def test_a_text_may_have_many_lines(tmp_path):
    poem = "\n".join(f"line {line}, and more, and more" for line in range(30))
    letters = ["Dear John,\nthe film is good.\nYours, 1", "Hello, friend\nhow are you, 0", poem, "good " * 300_000]
    letters += ["Thanks\nBob", "Thanks", "Thanks", "cat+dog"]
    assert read(configure(write(tmp_path / "train.csv", letters, [0, 1] * 4))).texts == [letters]
    (tmp_path / "id.csv").write_text('id,text,label\n1,"Rating:\n5",0\n2,"5\nstars",1\n3,"a, b\nc, d",0\n4,d,1\n')
    assert read_own_file(tmp_path / "id.csv")["text"].to_pylist() == ["Rating:\n5", "5\nstars", "a, b\nc, d", "d"]


def test_bytes_in_parquet_are_texts_in_utf8_or_refused(tmp_path):
    columns = {"text": ["é".encode(), b"b", b"c", b"d"], "label": [b"neg", b"pos", b"neg", b"pos"]}
    write_parquet(tmp_path / "train.parquet", columns)
    cfg = configure(tmp_path / "train.parquet")
    assert (cfg.task.labels, read(cfg).texts) == (["neg", "pos"], [["é", "b", "c", "d"]])
    write_parquet(tmp_path / "bad.parquet", columns | {"label": [*columns["label"][:3], b"\xff\xfe"]})
    with pytest.raises(UserError):
        configure(tmp_path / "bad.parquet")


@pytest.mark.parametrize(("train", "dev"), [(["01", "02"], ["2", "1"]), (["-1", "+1"], ["1", "-1"])])
def test_a_number_is_one_class_however_a_file_writes_it(tmp_path, train, dev):
    file = write(tmp_path / "train.csv", [*"abcd"], train * 2)
    cfg = configure(file, write(tmp_path / "dev.csv", [*"ef"], dev))
    assert read(cfg).labels.tolist() == [0, 1, 0, 1]
    assert read(cfg, "validation").labels.tolist() == [1, 0]


def test_one_file_is_divided_by_shares_and_equal_texts_stay_together(tmp_path):
    file = write(tmp_path / "all.csv", [f"text {number // 2}" for number in range(120)], ["u", "v"] * 60)
    files = f"data.files={{train: {file}, validation: 0.2, test: 0.1}}"
    configs = [
        make_config("task=mine", files, "task.test_split=test", *more) for more in ([], ["task.sample_seed=7"])
    ]
    for cfg in configs:
        validate_config(cfg)
        check_files([cfg])
        parts = [read(cfg, split).texts[0] for split in ("train", "validation", "test")]
        assert [len(part) for part in parts] == [84, 24, 12]
        assert len({text for part in parts for text in part}) == sum(len(set(part)) for part in parts) == 60
    assert read(configs[0]).texts != read(configs[1]).texts
    assert len({identify(cfg).key for cfg in (*configs, configure(file))}) == 3
    with pytest.raises(UserError):  # equal texts, of which none is left for a tenth
        configure(write(tmp_path / "same.csv", ["same"] * 50, ["u", "v"] * 25), 0.1)


def test_splits_and_files_must_match(tmp_path):
    file = write(tmp_path / "train.csv", ["a", "b"], ["u", "v"])
    for files in (
        f"trian: {file}, validation: {file}", f"train: {file}, validation: {file}, test: {file}",
        f"train: 0.5, validation: {file}",
    ):  # fmt: skip
        with pytest.raises(UserError):
            identify(make_config("task=mine", f"data.files={{{files}}}"))
    with pytest.raises(UserError):  # it would be ignored
        make_config(f"data.files={{train: {file}, validation: {file}}}")


def make_pair(tmp_path, train, dev):
    for name, text in (("train", train), ("dev", dev)):
        (tmp_path / f"{name}.csv").write_text(text)
    return tmp_path / "train.csv", tmp_path / "dev.csv"


@pytest.mark.parametrize(
    ("dev", "overrides"),
    [
        ("text,label\na,w\n", []), ("text\na\n", []), ("sentence,label\na,u\n", []), ("text,label\n", []),
        ("text,label\n ,u\n", []), ("text,label\na,u\nc,u\n", []), ("text,label\nd,v\nc,u\na,v\nb,v\n", []),
        (f"{GOOD_TEXT.replace(',', ' ,').replace('text ', 'text')}", []),  # the texts of the training set
        ("text,label\na,u\n", ["task.label_range=[0,1]"]), ("text,label\na,u\n", ["task.labels=[u,w]"]),
    ],
)  # fmt: skip
def test_every_file_is_read_before_anything_starts(tmp_path, dev, overrides):
    with pytest.raises(UserError):
        check_files([configure(*make_pair(tmp_path, GOOD_TEXT, dev), *overrides)])


@pytest.mark.parametrize(
    ("train", "dev"),
    [
        (["1", "1_0.5", "3"], ["1", "2"]), (["1", '"1,5"', "3"], ["1", "2"]), (["0.1", "0.1"], ["1", "2"]),
        ([str(1_700_000_000 + 30 * row) for row in range(40)], ["1", "2"]), (["1", "2"], ["2.5", "2.5"]),
    ],
)  # fmt: skip
def test_scores_are_plain_numbers_that_differ(tmp_path, train, dev):
    texts = ["text,label\n" + "".join(f"{x} {y},{x}\n" for y, x in enumerate(scores)) for scores in (train, dev)]
    with pytest.raises(UserError):
        check_files([configure(*make_pair(tmp_path, *texts), "task.metrics=[pearson]")])


def test_the_key_holds_content_format_and_columns_and_no_path(tmp_path):
    texts, labels = ["a", "b", "c", "d"], ["u", "v"] * 2
    train = write(tmp_path / "train.csv", texts, labels)
    key = identify(configure(train)).key
    assert key == identify(configure(write(tmp_path / "moved.csv", texts, labels))).key
    assert key == identify(configure(train, None, "task.text=[review]", "task.label=stars", "task.labels=[u,v]")).key
    (tmp_path / "train.tsv").write_bytes(train.read_bytes())
    other_format = [  # the same bytes, read another way
        make_config("task=mine", f"data.files={{train: {train}, validation: {file}}}", "task.labels=[u,v]")
        for file in (train, tmp_path / "train.tsv")
    ]
    assert len({identify(cfg).key for cfg in other_format}) == 2
    others = [
        configure(train, None, "task.labels=[v,u]"),
        configure(train, None, "task.metrics=[accuracy]"),
        configure(write(tmp_path / "changed.csv", [*texts[:3], "e"], labels)),
    ]
    assert len({key, *(identify(cfg).key for cfg in others)}) == 4


@pytest.mark.slow
def test_a_sweep_on_own_files_counts_what_is_in_both_splits(cli, tiny, cache, tmp_path):
    for split, count in (("train", 64), ("dev", 24)):
        columns = review_columns(count, count)
        columns["sentence"][:2] = ["a good film", "a bad film"]  # in both splits
        write(tmp_path / f"{split}.csv", columns["sentence"], ["bad good".split()[n] for n in columns["label"]])
    files = f"data.files={{train: {tmp_path}/train.csv, validation: {tmp_path}/dev.csv}}"
    own = [*tiny_overrides(tiny, tmp_path, cache, tmp_path / "outputs")[2:], "task=mine", files]
    check_done(cli(*own, "-m", "seed=1,2"))
    for file in (tmp_path / "outputs").glob("runs/*/result.json"):
        assert json.loads(file.read_text())["data"]["in_train"] == {"validation": 2}


def test_labels_that_are_all_minus_one_are_hidden_unless_a_class_is_called_so():
    for values, hidden in ((["-1", "-1"], True), ([-1, -1.0], True), (["", None], True), (["-1", ""], False)):
        assert are_hidden(values, ["0", "1"]) == hidden
    assert not are_hidden(["-1", "1"], ["0", "1"])
    assert not are_hidden(["-1", "-1"], ["-1", "1"])  # -1 is a class
