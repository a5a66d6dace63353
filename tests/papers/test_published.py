"""The papers' numbers: form, display, against the papers' texts where there are any, and against the configs."""

import re
from pathlib import Path

import pytest
import yaml
from helpers import read_experiment
from hydra.core.global_hydra import GlobalHydra

from isobench.common.packages import conf_dir
from isobench.data.scale import find_scale_differences
from isobench.papers import published
from isobench.sweep.planning import compose_sweep, plan_runs

SMALL = {"table2": "50k ", "table3": "20k ", "table5": "20k "}  # tables with rows of a small data set: its columns


BERT, ROBERTA, UNCASED = "bert-base-cased", "roberta-large", "bert-base-uncased"
CALIBRATION = "isotropy_calibration table1 bert-base-cased"


@pytest.mark.parametrize(
    ("key", "printed"),
    [
        ("isobn table1 bert-base-cased none sst2 accuracy", ("92.43 (0.7)", BERT)),
        ("isobn table1 roberta-large isobn_released rte accuracy", ("87.00 (1.3)", ROBERTA)),
        ("isobn table1 roberta-base isobn_paper rte accuracy", ("87.00 (1.3)", ROBERTA)),  # of the family
        ("isobn table1 minilm none rte accuracy", ("67.87 (1.1)", BERT)),  # the paper's first encoder
        ("isobn table1 minilm none stsb accuracy", None),  # another metric
        (f"{CALIBRATION} none mnli accuracy", ("81.02 ± 0.17", BERT)),  # the first dev split
        (f"{CALIBRATION} spectrum_polynomial mrpc f1", ("81.22 ± 0", BERT)),
        (f"{CALIBRATION} spectrum_polynomial stsb pearson", ("NaN", BERT)),
        (f"{CALIBRATION} cosine mrpc accuracy", None),  # it printed F1
        ("isotropy_calibration table4 minilm spectrum_polynomial mrpc head/i2_printed", ("7.0e-4 ± 3.0e-4", BERT)),
        ("task_adaptation table2 minilm none mnli accuracy", ("84.21 / 84.29", UNCASED)),
    ],
)
def test_a_cell_is_shown_as_printed_with_the_encoder_that_it_is_of(key, printed):
    paper, name, encoder, method, task, metric = key.split()
    table = published.load_tables(paper)[name]
    column = published.find_column(table, task, metric)
    assert (published.find_cell_in_column(table, encoder, method, column) if column else None) == printed


def digits(text):
    """Every number of a text, as typed: LaTeX taken off, 7e^{-4} as 7.0e-4, .07 as 0.07."""
    text = re.sub(r"e\^\{-4\}", ".0e-4", text)
    text = re.sub(r"\\(textbf|pm|!)|[\\${}^ ]|</?b>", " ", text)
    found = re.findall(r"NaN|(?<![\d.])-?\d*\.?\d+(?:e-4)?", text)
    return [f"0{number}" if number.startswith(".") else number for number in found]


def typed(tables, table, small=None):
    """A table's numbers in the order of print, one list a line; columns of a ``small`` data set are lines there."""
    columns = list(tables[table].columns)
    blocks = [columns[i : i + 6] for i in range(0, len(columns), 6)] if table == "table4" else [columns]
    if small:
        blocks = [[column for column in columns if (small in column) is of_small] for of_small in (False, True)]
    return [
        [str(value) for column in block for value in cells[column] if value is not None]
        for block in blocks
        for row in tables[table].cells.values()
        for cells in row.values()
        if block[0] in cells
    ]


def lines(file, pattern):
    """The cells of a text's table lines: those whose first cell fits."""
    split = (line.split("\t") for line in file.read_text().splitlines())
    return [digits(" ".join(cells[1:])) for cells in split if len(cells) > 1 and re.match(pattern, cells[0])]


def test_isotropy_calibrations_numbers_are_the_papers(papers):
    tables = published.load_tables("isotropy_calibration")
    found = lines(papers / "isotropy_calibration.txt", r"(M-)?BART|BERT|RoBERTa|DistilBERT|\+")
    by_table = [typed(tables, table, SMALL.get(table)) for table in tables]
    expected = [line for table in by_table for line in table]
    assert [len(table) for table in by_table] == [13, 6, 6, 39, 6]
    assert found == expected
    text = (papers / "isotropy_calibration.txt").read_text()
    stars = [cell for line in text.splitlines() for cell in line.split("\t")[1:] if cell.endswith("*")]
    assert [digits(cell)[0] for cell in stars] == ["85.64", "57.28"]


def test_too_much_in_commons_numbers_are_the_papers(papers):
    tables = published.load_tables("too_much_in_common")
    file = papers / "too_much_in_common.txt"
    models = r"(?i:bert|roberta)-(base|large)(-(un)?cased)?$|GPT-2[- ][\w() ]+$|\+ [\w-]+$"
    both = lines(file, models)
    assert [line for line in both if len(line) == 6] == typed(tables, "table1")
    assert [line for line in both if len(line) == 10] == typed(tables, "table3")
    assert len(both) == 8 + 18
    columns = [  # each with its differences in brackets, two encoders beside each other
        [str(number).lstrip("+") for row in values for number in (values[row][column][0], changes[row][column])]
        for encoder, values in tables["table2"].cells.items()
        for changes in [tables["table2"].differences[encoder]]
        for column in values["raw"]
    ]
    found = [[x for x in line if x != "-2"] for line in lines(file, r"[\w-]+ \+ Centered \+")]  # less GPT-2's name
    assert found == [columns[0] + columns[1] + columns[2], columns[3] + columns[4] + columns[5],
                     columns[6] + columns[7] + columns[8]]  # fmt: skip
    # Underlined is each column's best.
    best = re.findall(r"\\underline\{(\d\d\.\d\d)", file.read_text())
    assert best == [max(column[::2], key=float) for column in columns]


def test_section_5_3s_two_numbers_are_the_papers(papers):
    text = (papers / "too_much_in_common.txt").read_text()
    (cells,) = published.load_tables("too_much_in_common")["section5_3"].cells["roberta-large"].values()
    for column, pattern in (
        ("avg cos", r"embeddings from RoBERTa-large have an average pairwise cosine similarity of (0\.\d\d)"),
        ("cos(mean, top)", r"for RoBERTa-large, the cosine similarity between the top eigenvector.* is (0\.\d\d)\."),
    ):
        assert re.findall(pattern, text) == [str(cells[column][0])]


def test_isobns_explained_variances_are_the_papers(papers):
    rows = typed(published.load_tables("isobn"), "table2")
    assert lines(papers / "isobn_aaai2021.txt", r"(BERT-base|RoBERTa-L)(\+(Iso)?BN)?$") == rows
    assert len(rows) == 6


def test_isobns_first_versions_numbers_are_the_papers(papers):
    tables = published.load_tables("isobn_arxiv_v1")
    text = (papers / "isobn_arxiv_v1.txt").read_text()
    rows = re.findall(r"(?:\((?:ReImp|Reported)\)|IsoBN) (\d\d\.\d\d(?: [\d.]+(?: \([\d.]+\))?){7})", text)
    bert, roberta = (
        [
            [str(tables["table1"].average[encoder][method]), *(str(x) for cell in cells.values() for x in cell)]
            for method, cells in methods.items()
        ]
        for encoder, methods in tables["table1"].cells.items()
    )
    reported = [str(value) for value in tables["table1"].reported["roberta-large"].values()]
    assert [digits(row) for row in rows] == [*bert, reported, *roberta]
    found = re.findall(r"(?:BERT-base|RoBERTa-L)(?:\+(?:Iso)?BN)? ((?:\d\.\d\d(?: / | )?){12})", text)
    assert [digits(row) for row in found] == typed(tables, "table2")


def test_task_adaptations_numbers_are_the_papers(papers):
    tables = published.load_tables("task_adaptation")
    found = lines(papers / "efficient_task_adaptation.txt", r"BERT-|Z-norm|Min-Max|L2 norm")
    assert found == [line for table in tables for line in typed(tables, table)]


def test_isobns_numbers_are_the_papers(papers):
    table = published.load_tables("isobn")["table1"]
    text, blank = (papers / "isobn_aaai2021.txt").read_text(), {}
    for line, encoder in (("BERT-base (ReImp)", "bert-base-cased"), ("RoBERTa-L (ReImp)", "roberta-large")):
        average, *cells = next(row for row in text.splitlines() if row.startswith(line)).split("\t")[1:]
        assert average == ""
        printed = {column: digits(cell) for column, cell in zip(table.columns, cells, strict=True)}
        blank[encoder] = [column for column, found in printed.items() if not found]
        for column in printed.keys() - blank[encoder]:
            both = [*table.cells[encoder]["plain"][column], *table.cells[encoder]["isobn"][column]]
            assert list(map(float, printed[column])) == both
    assert blank == {"bert-base-cased": ["QNLI", "SST-2", "MRPC", "CoLA"], "roberta-large": ["QNLI"]}


@pytest.mark.parametrize("file", sorted(Path(conf_dir(), "encoder").glob("*.yaml")), ids=lambda file: file.stem)
def test_an_encoder_from_the_hub_is_pinned_at_a_whole_commit(file):
    encoder = yaml.safe_load(file.read_text())
    assert ("hub" in encoder) == ("revision" in encoder)
    assert re.fullmatch(r"[0-9a-f]{40}", encoder.get("revision", "0" * 40))


@pytest.mark.parametrize(
    ("experiments", "table"),
    [(["common_isotropy"], "table1"), (["common_wordsim"], "table2"), (["common_wordsim"], "table3"),
     (["glue_adaptation", "glue_adaptation_large"], "table1")],
)  # fmt: skip
def test_the_papers_grid_has_every_encoder_of_its_table(experiments, table):
    encoders = set()
    for experiment in experiments:
        content = read_experiment(experiment)["experiment"]
        encoders |= {name for part in content["grid"]["paper"] for name in part["encoder"]}
    assert encoders == set(published.load_tables(content["paper"])[table].cells)


# Of scale=laptop: the numbers of runs.
RUNS = {"glue_calibration": 75, "glue_isobn": 60, "isobn_drift": 12, "glue_adaptation": 60}


def plan(*arguments):
    try:
        with compose_sweep(["scale=laptop", "tracking=none", *arguments]) as parts:
            return [run.cfg for run in plan_runs(*parts)]
    finally:
        GlobalHydra.instance().clear()


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.slow
def test_the_protocol_is_the_papers(name, monkeypatch):
    monkeypatch.delenv("ISOBENCH_DATA", raising=False)
    configs = plan(f"+experiment={name}")
    assert len(configs) == RUNS[name]
    for cfg in configs:
        assert (cfg.task.train_samples, cfg.task.dev_samples) == (None, None)
        assert cfg.optimization.lr in (2e-5, 5e-5)
        assert cfg.optimization.batch_size == 32
    epochs = {(cfg.task.name, cfg.optimization.epochs) for cfg in configs}
    if name == "glue_calibration":  # App. B
        assert epochs == {("rte", 3), ("cola", 3), ("stsb", 3), ("mrpc", 5), ("wnli", 5)}
    else:
        assert {count for _, count in epochs} == {10}


@pytest.mark.slow
def test_what_is_left_out_is_said(monkeypatch):
    monkeypatch.delenv("ISOBENCH_DATA", raising=False)
    configs = {cfg.calibration["name"]: cfg for cfg in plan("+experiment=glue_isobn", "task=rte", "seed=1")}
    said = ["encoder minilm in the place of bert-base-cased, roberta-large", "tasks left out: mnli, qnli, sst2"]
    assert find_scale_differences(configs["none"]) == [*said, "1 of the grid's 6 configurations"]
    assert find_scale_differences(configs["isobn_paper"]) == [*said, "1 of the grid's 18 configurations"]
