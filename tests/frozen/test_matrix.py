"""Vectors, labels and pairs of anybody's files: read as they were written, and one line for each mistake."""

import pickle
import zipfile
from decimal import Decimal

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
import torch
from helpers import RunsCode, fails
from safetensors.numpy import save_file

from isobench.common.errors import UserError
from isobench.data import own_values
from isobench.frozen import matrix
from isobench.frozen.matrix import read_rows

X = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)


def write(path, array=X):
    """Write an array in the format of a file's name, beside a second one where the format has room for it."""
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        np.savez(path, a=array, b=array * 2)
    elif path.suffix == ".safetensors":
        save_file({"a": array, "b": array * 2}, path)
    elif path.suffix == ".pt":
        torch.save({"a": torch.from_numpy(array), "b": torch.from_numpy(array) * 2, "step": 3}, path)
    else:
        lists = pyarrow.array(list(array), pyarrow.list_(pyarrow.float32()))
        pyarrow.parquet.write_table(pyarrow.table({"a": lists, "b": lists, "n": range(len(array))}), path)
    return path


@pytest.mark.parametrize("ending", [".npy", ".npz", ".safetensors", ".pt", ".parquet"])
def test_every_format_gives_the_numbers_that_were_written(tmp_path, ending):
    path = write(tmp_path / f"x{ending}")
    key = None if ending == ".npy" else "a"
    vectors, _ = matrix.read_vectors(path, key)
    np.testing.assert_array_equal(np.asarray(vectors), X)
    for wrong in ("c", None) if key else ("a",):
        with fails():
            matrix.read_vectors(path, wrong)


def test_numeric_columns_of_parquet_without_the_labels(tmp_path):
    table = pyarrow.table({"name": ["a"] * 9, "u": X[:, 0], "v": X[:, 1], "kind": [0, 1, 2] * 3, "label": range(9)})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    vectors, notes = matrix.read_vectors(tmp_path / "x.parquet", None, ["kind"])
    np.testing.assert_array_equal(vectors, X[:, :2])
    assert notes == ["The coordinates are the 2 numeric columns u, v; left out: label, name, kind."]


@pytest.mark.parametrize(
    ("columns", "coordinates"),
    [
        ({"id": range(9), "x0": X[:, 0], "x1": X[:, 1], "x2": X[:, 2]}, "x0 x1 x2"),
        ({"id": np.arange(9) + 10**6, "u": X[:, 0], "v": X[:, 1]}, "u v"),
        ({"u": X[:, 0], "v": X[:, 1], "row": [3.0, 1, 2, 0, 4, 5, 8, 7, np.nan]}, "u v"),
        ({"u": X[:, 0], "v": X[:, 1], "year": [2001] * 4 + [2002] * 5}, "u v"),
        ({"u": X[:, 0], "dead": [0.0] * 9}, "u dead"),  # a constant says nothing of the rows
        ({"0": X[:, 0], "1": X[:, 1], "2": X[:, 2], "stars": X[:, 0], "score": X[:, 1]}, "0 1 2"),
        ({"Score": X[:, 0], "u": X[:, 1], "v": X[:, 2]}, "u v"),
        ({"id": range(9), "a": [1, 2, 3] * 3, "b": [0, 0, 1] * 3}, "a b"),  # quantised
        ({"a1": [*range(9)], "a2": [*range(8, -1, -1)], "label": [0, 1, 2] * 3}, "a1 a2"),
    ],
)
def test_not_all_numeric_columns_are_coordinates_of_a_file_or_a_frame(tmp_path, columns, coordinates):
    frame = pandas.DataFrame(columns)
    frame.to_parquet(tmp_path / "x.parquet")
    chosen = coordinates.split()
    for vectors, (note,) in (
        matrix.read_vectors(tmp_path / "x.parquet"),
        matrix.read_table(matrix.as_table(frame), "X"),
    ):
        np.testing.assert_array_equal(vectors, frame[chosen].to_numpy())
        left_out = [name for name in columns if name not in chosen]
        assert note.endswith(f"left out: {', '.join(left_out)}." if left_out else f"{', '.join(chosen)}.")


def test_what_is_no_frame_is_no_table_and_two_columns_of_one_name_are_refused():
    assert matrix.as_table(X) is matrix.as_table(torch.from_numpy(X)) is matrix.as_table(X.tolist()) is None
    for frame in (pandas.DataFrame(X[:, :2], columns=["u", "u"]), pandas.DataFrame({"u": [1.0, "a"]})):
        with fails():
            matrix.read_table(matrix.as_table(frame), "X")


@pytest.mark.parametrize("name", [None, "row"])
def test_an_index_of_pandas_is_no_coordinate_decimals_are_and_bits_are_named(tmp_path, name):
    table = pandas.DataFrame({"u": X[:, 0], "d": [Decimal("1.5"), None] + [Decimal(2)] * 7, "b": X[:, 2] > 0})
    table.index = pandas.Index(list(range(100, 109)), name=name)
    table.to_parquet(tmp_path / "x.parquet")
    vectors, notes = matrix.read_vectors(tmp_path / "x.parquet")
    np.testing.assert_array_equal(vectors, np.stack([X[:, 0], [1.5, np.nan] + [2] * 7], 1))
    assert notes == [f"The coordinates are the 2 numeric columns u, d; left out: b, {name or '__index_level_0__'}."]


def test_bfloat16_integers_and_another_byte_order_are_read(tmp_path):
    torch.save(torch.from_numpy(X).bfloat16(), tmp_path / "x.pt")
    assert matrix.read_vectors(tmp_path / "x.pt")[0].dtype == torch.bfloat16
    with fails():  # a file of one array has no key
        matrix.read_vectors(tmp_path / "x.pt", "layer_6")
    for kind in (np.int8, ">f4"):
        np.save(tmp_path / "x.npy", np.arange(8, dtype=kind).reshape(4, 2))
        assert read_rows(matrix.read_vectors(tmp_path / "x.npy")[0], slice(1, 2)).tolist() == [[2, 3]]


@pytest.mark.parametrize("ending", [".npy", ".pt", ".pkl", ".npz"])
def test_nothing_in_a_pickle_is_executed(tmp_path, ending):
    path, trace = tmp_path / f"x{ending}", tmp_path / "trace"
    if ending == ".npz":
        np.savez(path, a=np.array([RunsCode(trace)], object), allow_pickle=True)
    else:
        path.write_bytes(pickle.dumps(RunsCode(trace)))
    with fails():
        matrix.read_vectors(path, "a" if ending == ".npz" else None)
    assert not trace.exists()


def test_damaged_and_missing_files(tmp_path):
    whole = write(tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:-20])
    (tmp_path / "y.npz").write_bytes(b"PK no zip")
    (tmp_path / "x.safetensors").write_bytes(b"\xff" * 40)
    with zipfile.ZipFile(tmp_path / "x.pt", "w") as file:
        file.writestr("x", "x")
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    (tmp_path / "folder.npy").mkdir()
    for name in ("x.npy", "y.npz", "x.safetensors", "x.pt", "x.parquet", "folder.npy", "gone.npy", "x.bin"):
        with pytest.raises(UserError) as caught:
            matrix.read_vectors(tmp_path / name)
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)


def test_ragged_and_missing_lists():
    kind, tags = pyarrow.list_(pyarrow.float64()), pyarrow.array([["a"], ["b"], []])
    missing = pyarrow.table({"v": pyarrow.array([None, [1.0, 2.0], []], kind), "tags": tags})
    assert np.array_equal(matrix.read_table(missing, "x")[0], [[np.nan] * 2, [1, 2], [np.nan] * 2], equal_nan=True)
    numbered = pyarrow.table({"tags": tags, "x10": [3.0] * 3, "x2": [2.0] * 3, "x1": [1.0] * 3})
    assert np.array_equal(matrix.read_table(numbered, "x")[0], [[1, 2, 3]] * 3)
    with fails():
        matrix.read_table(pyarrow.table({"v": pyarrow.array([[1.0, 2.0], [1.0]], kind)}), "x")


@pytest.mark.parametrize(
    "labels",
    [
        list("aabb"), ["1_11", "1_11", "11_1", "11_1"], [3, 3, 7, 7], np.array([1, 1, 2, 2], np.uint8),
        [[0], [0], [1], [1]], [True] * 2 + [False] * 2,
    ],
)  # fmt: skip
def test_classes_are_numbered(labels):
    classes = own_values.make_classes(labels, 4)
    assert classes[0] == classes[1] != classes[2] == classes[3]
    assert set(classes.tolist()) == {0, 1}


def test_labels_of_files_and_columns(tmp_path):
    (tmp_path / "y.txt").write_text("a\nb\n\n", encoding="utf-8")
    assert own_values.read_labels(str(tmp_path / "y.txt"), None) == ["a", "b", ""]
    np.save(tmp_path / "y.npy", [1, 2])
    assert own_values.read_labels(str(tmp_path / "y.npy"), None).tolist() == [1, 2]
    (tmp_path / "x.csv").write_text("text,label\nu,a\nv,b\n", encoding="utf-8")
    assert own_values.read_labels("label", tmp_path / "x.csv") == ["a", "b"]
    assert own_values.read_texts(tmp_path / "x.csv", "text") == ["u", "v"]
    for named, file in (("lable", tmp_path / "x.csv"), ("label", tmp_path / "x.npy"), ("label", None)):
        with fails():
            own_values.read_labels(named, file)


def test_texts_are_never_dropped(tmp_path):
    (tmp_path / "x.txt").write_bytes("a\r\nb\u2028c\n".encode())
    assert own_values.read_texts(tmp_path / "x.txt", None) == ["a", "b\u2028c"]
    for content in (b"", b"a\n\nb\n", "a\nb\n".encode("utf-16-le")):
        (tmp_path / "x.txt").write_bytes(content)
        with fails():
            own_values.read_texts(tmp_path / "x.txt", None)


def test_pairs_by_row_and_by_text(tmp_path):
    (tmp_path / "p.csv").write_text("first,second,score\n0,1,2.5\n1,2.0,3\n2,0,1\n", encoding="utf-8")
    rows, scores = own_values.number_pairs(own_values.read_pairs(tmp_path / "p.csv"), 3)
    assert rows.tolist() == [[0, 1], [1, 2], [2, 0]]
    assert scores.tolist() == [2.5, 3, 1]
    named = (["u", "v", "u"], ["v", "w", "w"], [1, 2, 3])
    assert own_values.number_pairs(named, 3, {"u": 0, "v": 1, "w": 2})[0].tolist() == [[0, 1], [1, 2], [0, 2]]


NO_MATRIX = [
    np.ma.masked_array(X, X > 0), torch.from_numpy(X).to_sparse(), [[1, 2], [3]], X.astype(complex), X[:, 0],
    [torch.ones(2, requires_grad=True)] * 2, X.reshape(3, 3, 3), np.array([["a", "b"]] * 3),
]  # fmt: skip
NO_CLASSES = [
    list("aab"), list("aaaa"), list("abcd"), [0.5, 0.5, 1, 1], ["a", None, "b", "b"], [1.0, np.nan, 2, 2],
    ["1", "nan", "2", "2"], ["pos", "Pos", "pos", "Pos"], ["7", "007", "7", "007"], [-1, -1, 0, 0],
]  # fmt: skip
NO_PAIRS = [
    ([0, 1, 3], [1, 2, 0], [1, 2, 3]), ([0, 1, -1], [1, 2, 0], [1, 2, 3]), ([0, 1, 2], [1, 0.5, 0], [1, 2, 3]),
    ([0, 1, 2], [1, 2, 0], [1, None, 3]), ([0, 1], [1, 2, 0], [1, 2, 3]),
    ([0, 1, 2], [1, 2, 0], ["1", "1_0", "3"]), (["u", "x", "u"], ["v", "v", "u"], [1, 2, 3]),
    ([0, None, 2], [1, 2, 0], [1, 2, 3]),
]  # fmt: skip


def test_objects_that_are_no_matrix_no_classes_or_no_pairs_are_refused():
    for vectors in NO_MATRIX:
        with fails():
            matrix.check_vectors(vectors, "X")
    for labels in NO_CLASSES:
        with fails():
            own_values.make_classes(labels, 4)
    for pairs in NO_PAIRS:
        with fails():
            own_values.number_pairs(pairs, 3, {"u": 0, "v": 1})
