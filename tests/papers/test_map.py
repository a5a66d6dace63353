"""The map of all tables and figures and the pages of errata: complete, commands plan, tests that are named exist."""

import re
import shlex

import pytest
from helpers import ROOT, TEXTS, read_experiment, write_sets
from hydra.core.global_hydra import GlobalHydra

from isobench.data.packaged import encoders
from isobench.papers import published
from isobench.papers.description import describe_paper, write_map
from isobench.papers.folders import find_papers
from isobench.sweep import grid
from isobench.sweep.planning import compose_sweep, plan_runs

PAGE = (ROOT / "experiments" / "README.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.startswith("| [")
]
COMMANDS = list(dict.fromkeys(re.findall(r"`python -m isobench ([^`]+)`", PAGE)))


def paper_of(row):
    return re.match(r"\[(\w+)\]", row[0])[1]


def name_of(row):
    return re.match(r"(?:Table|Figure) \d+", row[1])[0]


def test_the_map_is_made_of_the_papers_own_files():
    assert write_map().strip() in PAGE


def test_a_terminal_shows_every_command_of_the_map_and_breaks_other_lines():
    lines = [line for name in find_papers() for line in describe_paper(name, 80).splitlines()]
    commands = [line.partition("python -m isobench ")[2] for line in lines]
    assert set(filter(None, commands)) == set(re.findall(r"`python -m isobench ([^`]+)`", write_map()))
    assert all(len(line) <= 80 for line, command in zip(lines, commands, strict=True) if not command)


def test_every_table_and_figure_with_a_caption_is_in_the_map(papers):
    captions = {
        (paper, f"{kind} {number}")
        for paper, file in TEXTS.items()
        for kind, number in re.findall(r"\b(Table|Figure) (\d+):", (papers / f"{file}.txt").read_text())
    }
    mapped = {(paper_of(row), name_of(row)) for row in ROWS}
    assert mapped == captions
    assert len(mapped) == 35
    tables = {(paper, name.lower().replace(" ", "")) for paper, name in mapped if name.startswith("Table")}
    assert tables == {(p, name) for p in TEXTS for name in published.load_tables(p) if name.startswith("table")}


def test_an_experiment_is_of_the_paper_and_the_table_that_its_row_names():
    for row in ROWS:
        for name in re.findall(r"\+experiment=(\w+)", row[2]):
            experiment = read_experiment(name)["experiment"]
            assert experiment["paper"] == paper_of(row).replace("_arxiv_v1", ""), row
            if row[1].startswith("Table") and experiment.get("tables"):
                assert name_of(row).lower().replace(" ", "") in experiment["tables"], row


class EachValueOnce:
    """Stand in for itertools.product: every value of every axis once in all calls, not every combination of them."""

    def __init__(self):
        self.seen = set()

    def product(self, *axes):
        if not all(axes):
            return []
        new = [[value for value in axis if value not in self.seen] or axis[:1] for axis in axes]
        self.seen.update(value for axis in new for value in axis)
        return [tuple(axis[i % len(axis)] for axis in new) for i in range(max(map(len, new), default=1))]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_plans(command, monkeypatch, tmp_path, cache):
    folder = str(write_sets(tmp_path / "pairs"))
    monkeypatch.delenv("ISOBENCH_DATA", raising=False)
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(grid, "itertools", EachValueOnce())
    monkeypatch.setattr(encoders, "_find_mpnet_parts", lambda _: [ROOT])  # a package that need not be installed
    planned_command = command.replace("scale=laptop data.root=FOLDER", "scale=laptop")  # the folder has no GLUE
    arguments = shlex.split(planned_command.replace("COMMIT", "0" * 40).replace("FOLDER", folder))
    own = ["dry_run=true", f"output_dir={tmp_path}", f"data.cache={cache}"]
    try:
        with compose_sweep([*arguments, *own]) as parts:
            planned = plan_runs(*parts)
    finally:
        GlobalHydra.instance().clear()
    assert planned
    configs = [run.cfg for run in planned]
    assert {cfg.scale for cfg in configs} == {(re.findall(r"scale=(\w+)", command) or ["embedded"])[0]}
    assert {f"+experiment={cfg.experiment.name}" for cfg in configs} <= set(arguments)


ERRATA = sorted(ROOT.glob("experiments/*/errata.md"))


def find_written_tests():
    """Every (file, name) of a test function, the file from the repository's root."""
    return {
        (str(file.relative_to(ROOT)), name)
        for file in [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("experiments/*/tests/test_*.py")]
        for name in re.findall(r"^ *(?:def|class) ((?:test_|Test)\w+)", file.read_text(), re.MULTILINE)
    }


@pytest.mark.parametrize("page", ERRATA, ids=lambda page: page.parent.name)
def test_every_point_has_one_label_and_what_is_proven_names_a_test_that_exists(page):
    written = find_written_tests()
    parts = re.split(r"^(\d+)\. ", page.read_text(), flags=re.MULTILINE)
    assert [int(number) for number in parts[1::2]] == list(range(1, len(parts) // 2 + 1))
    for point in parts[2::2]:
        labels = re.findall(r"\*\*(Proven|Inferred|Ours)\.\*\*", point)
        assert [point.startswith(f"**{label}.** ") for label in labels] == [True], point
        named = re.findall(r"`(?:((?:tests|experiments)/[\w/]+\.py)::)?((?:test_|Test)\w+)`", point)
        assert labels != ["Proven"] or named, point
        for file, name in named:
            places = [place for place, found in written if found == name]
            of_papers = [place for place in places if place.startswith(("tests/papers/", "experiments/"))]
            assert file in places if file else len(of_papers) == 1, name
