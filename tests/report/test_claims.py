"""The papers' claims: their commands, and the page over an output folder. test_checks.py has the checks."""

import csv
import hashlib
import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest
from helpers import TEXTS, check_done
from made_up_report import PLAIN, make_report, make_runs

from isobench.analyses.rows import read_claimed_rows
from isobench.common.files import add_json_checksum
from isobench.common.tidy import make_table, write_table
from isobench.config.command_line import MULTIRUN_FLAGS
from isobench.report.checks import judge_cases
from isobench.report.claims import (
    FAILS,
    HOLDS,
    NOT_JUDGED,
    NOT_RUN,
    UNDECIDED,
    UNKNOWN,
    Claim,
    Outcome,
    find_faults,
    judge_claim,
    judge_print,
    load_claims,
    select,
)
from isobench.runs.grouping import read_run_names
from isobench.sweep.find_runs import find_runs

CLAIMS = load_claims()


ROWS = [
    {"encoder": "bert-base-cased", "task": "rte", "method": method, "x": x} for method, x in (("none", 1), ("bn", 2))
]
WORST = [row | {"x": 0} for row in ROWS]


def make_claim(**changes):
    """A claim on the analysis isobn_ev, which accepts ROWS."""
    claim = Claim(
        "all are above 0", "Table 1", "each x", "isobn_ev", lambda rows: judge_cases((r["x"] > 0 for r in rows), "x"),
        lambda: ROWS, broken={"none is": lambda: WORST}, rows_file="explained_variance", paper="isobn",
    )  # fmt: skip
    return replace(claim, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.paper}-{claim.quote[:30]}")
def test_a_claim_accepts_print_rejects_broken_numbers_and_names_what_is_there(claim):
    assert find_faults(claim) == []


FAULTS = [
    {"broken": {}}, {"broken": {"the same": lambda: ROWS}}, {"broken": {"all": list}},
    {"methods": ["batchnorm", "none"]}, {"tasks": ["rte", "rtf"]}, {"encoders": ["bart", "bert-base-cased"]},
    {"printed": lambda: WORST}, {"contradicted": "Table 2"}, {"check": lambda data: Outcome(FAILS, "")},
    {"experiment": "isobn_evv"}, {"printed": lambda: [{"encoder": "bert"}]},
]  # fmt: skip


@pytest.mark.parametrize("changes", FAULTS, ids=lambda changes: next(iter(changes)))
def test_a_fault_of_a_claim_is_found(changes):
    assert find_faults(make_claim()) == find_faults(make_claim(printed=lambda: WORST, contradicted="Table 2")) == []
    assert find_faults(make_claim(**changes))


def test_a_fault_ends_the_authors_command_and_does_not_stop_a_users_report(cli, monkeypatch, outputs):
    claims = [make_claim(), make_claim(**FAULTS[0])]
    monkeypatch.setattr("isobench.report.claims.load_claims", lambda *_: claims)
    assert cli("report", "--published")[0] == 1
    outputs.mkdir()
    check_done(cli("report", "--claims", "all", f"output_dir={outputs}"))
    claims.pop()
    check_done(cli("report", "--published"))


def test_a_claim_sees_what_it_names_and_plain_fine_tuning():
    rows = [*ROWS, {"encoder": "gpt2", "task": "cola", "x": 3}]
    for changes, xs in (
        ({}, [1, 2, 3]),
        ({"methods": ["cosine"]}, [1, 3]),  # a row that names no method is about all
        ({"methods": ["bn"], "tasks": ["rte"]}, [1, 2]),
        ({"encoders": ["gpt2"]}, [3]),
    ):
        assert [row["x"] for row in select(make_claim(**changes), rows)] == xs
    methods = ("none", "cosine", "flow")
    report = make_report(*(run for m in methods for t in ("rte", "cola") for run in make_runs(m, [70.0], task=t)))
    seen = select(make_claim(methods=["flow"], tasks=["cola"]), report)
    for table in (seen.runs, seen.cells):
        assert (set(table["method"]), set(table["task"])) == ({"none", "flow"}, {"cola"})


def test_a_claim_is_undecided_without_all_that_it_names():
    for word, changes in (
        (HOLDS, {"methods": ["bn"], "tasks": ["rte"], "encoders": ["bert-base-cased"]}),
        (UNDECIDED, {"methods": ["bn", "flow"], "tasks": ["rte", "cola"]}),
        (UNDECIDED, {"methods": ["flow"], "check": lambda rows: Outcome(FAILS, "x")}),
    ):
        claim = make_claim(printed="a figure", **changes)
        assert judge_claim(claim, None, lambda *_: (ROWS, []))[0].word == word


def test_runs_of_an_untrained_model_judge_nothing_but_those_of_another_do():
    untrained = {"scale": "encoder tiny is randomly initialised; at most 9 dev examples", "encoder": "tiny"}
    scratch = [run for method in ("none", "cosine") for run in make_runs(method, PLAIN, **untrained)]
    claim = make_claim(rows_file="", check=lambda report: Outcome(HOLDS, "1"), printed="a figure")
    outcome, scale = judge_claim(claim, lambda _: make_report(*scratch), None)
    assert (outcome.word, scale) == (NOT_JUDGED, untrained["scale"])
    assert claim.command in outcome.numbers
    both = make_report(*scratch, *make_runs("none", PLAIN, task="cola"))
    assert judge_claim(claim, lambda _: both, None)[0].word == NOT_JUDGED
    assert judge_claim(replace(claim, tasks=["cola"]), lambda _: both, None) == ((HOLDS, "1"), "")


def test_a_claim_on_an_experiment_that_is_not_there_is_unknown_whatever_was_run():
    claim = make_claim(experiment="isobn_evv")
    assert judge_claim(claim, None, lambda *_: (ROWS, []))[0].word == UNKNOWN


def test_a_check_whose_code_fails_is_unknown():
    def fail(data):
        raise ZeroDivisionError("division by zero")

    claim = next(claim for claim in CLAIMS if claim.experiment == "glue_isobn" and not isinstance(claim.printed, str))
    report = claim.printed()
    for check in (fail, lambda _: None):
        broken = replace(claim, check=check)
        assert judge_print(broken).word == judge_claim(broken, lambda _: report, None)[0].word == UNKNOWN


@pytest.mark.parametrize(
    ("word", "elsewhere"),
    [(HOLDS, "seen here"), (FAILS, "not seen here"), (UNDECIDED, "can't tell here"), (NOT_RUN,) * 2],
)
def test_outside_the_papers_setting_the_words_are_about_ours(word, elsewhere):
    claim = make_claim(check=lambda rows: Outcome(word, "1"), printed="a figure", broken={})
    for differences, expected in (([], word), (["another encoder"], elsewhere)):
        outcome, scale = judge_claim(claim, None, lambda *_, differences=differences: ([], differences))
        assert (outcome.word, scale) == (expected, "; ".join(differences) if word != NOT_RUN else "")


def test_a_part_of_what_the_paper_prints_does_not_decide_and_unstated_settings_never_do():
    of_anything = {"methods": (), "tasks": (), "encoders": (), "check": lambda _: Outcome(HOLDS, "1")}
    claim = replace(next(claim for claim in CLAIMS if claim.experiment == "isobn_ev"), **of_anything)
    whole = claim.printed()
    most = [row for row in whole if (row["encoder"], row["task"], row["method"]) != ("roberta-large", "rte", "none")]
    missing = (UNDECIDED, "1; not measured: roberta-large, rte, none")
    figure = replace(claim, printed="a figure", broken={"none": lambda: whole})  # what is made up says what counts
    for own in (claim, figure):
        assert judge_claim(own, None, lambda *_: (whole, []))[0] == (HOLDS, "1")
        assert judge_claim(own, None, lambda *_: (most, []))[0] == missing
    outcome = judge_claim(replace(claim, unstated="constants"), None, lambda *_: (whole, []))
    assert outcome == (("seen here", "1"), "constants")
    claim = replace(next(claim for claim in CLAIMS if claim.experiment == "glue_isobn"), **of_anything)
    report = claim.printed()
    assert judge_claim(claim, lambda _: report, None)[0].word == HOLDS
    mnli = report.runs["task"] == "mnli"
    for left_out in (mnli, mnli & (report.runs["method"] == "isobn_released")):
        some = replace(report, runs=report.runs[~left_out])
        assert judge_claim(claim, lambda _, some=some: some, None)[0].word == UNDECIDED
    named = replace(claim, tasks=("mnli", "rte"), methods=("isobn_released",))
    for part, word in ((report.runs["task"] == "cola", "seen here"), (left_out, "can't tell here")):
        some = replace(report, runs=report.runs[~part].assign(scale="another"))
        assert judge_claim(named, lambda _, some=some: some, None)[0].word == word


def test_every_claim_quotes_its_paper(papers):
    def simplify(text):
        return re.sub(r"[^a-z0-9]", "", re.sub(r"\\mathrm|\\text|<code>|</code>|\b\d{3}\b", "", text.lower()))

    texts = {paper: simplify((papers / f"{name}.txt").read_text()) for paper, name in TEXTS.items()}
    for claim in CLAIMS:
        if claim.paper in texts:
            parts = map(simplify, claim.quote.split(" ... "))
            assert all(part in texts[claim.paper] for part in parts), claim.quote


@pytest.mark.slow
@pytest.mark.parametrize("claim", [c for c in CLAIMS if "seed=" in c.settings], ids=lambda claim: claim.text[:20])
def test_a_claims_command_runs_what_it_compares(claim, monkeypatch):
    monkeypatch.delenv("ISOBENCH_DATA", raising=False)  # the folder of tests may have parts only of a task
    _, _, _, *arguments = shlex.split(claim.command)  # python -m isobench
    _, rows = find_runs([a for a in arguments if a not in MULTIRUN_FLAGS])
    assert {row.cfg.seed for row in rows} == {1, 2, 3, 4, 5}
    names = [dict(zip(("task", "encoder", "method"), read_run_names(row.cfg), strict=True)) for row in rows]
    made = [run for name in names for run in make_runs(scores=[70.0], **name)]
    scores = np.random.default_rng(0).normal(70, 5, len(rows))
    seeds = [row.cfg.seed for row in rows]
    made = [run | {"seed": seed, "score": score} for run, seed, score in zip(made, seeds, scores, strict=True)]
    assert claim.check(make_report(*made)).word == UNDECIDED  # it has what it needs, and finds no difference


@pytest.mark.slow
def test_the_page_of_claims_over_what_was_run(cli, small, outputs):
    assert check_done(cli("report", "--claims", "all", f"output_dir={outputs}"))[0].count("not run") == len(CLAIMS)
    assert not outputs.exists()
    settings = (*small, "task.name=rte", "encoder.pooling=cls", "task.train_samples=100")  # the claim names RTE
    check_done(cli("+experiment=isobn_ev", *settings))
    check_done(cli("report", "--claims", "all", f"output_dir={outputs}"))
    assert f"isobench report +experiment=isobn_ev output_dir={outputs}" in cli("report", f"output_dir={outputs}")[1]
    rows = list(csv.DictReader((outputs / "reports" / "claims.csv").open()))
    judged = [claim for claim in CLAIMS if claim.experiment == "isobn_ev" and not claim.encoders]  # ours is another
    assert (len(rows), sum(row["outcome"] == NOT_RUN for row in rows)) == (len(CLAIMS), len(CLAIMS) - len(judged))
    page = (outputs / "reports" / "claims.html").read_text()
    assert page.count("Not the paper's setting: ") == len(judged)


@pytest.mark.slow
def test_rows_that_can_not_be_read_are_unknown_and_a_damaged_plan_stops_nothing(cli, outputs):
    for file in (outputs / "plans" / "x.json", outputs / "reports" / "isobn_ev" / "about.json"):
        file.parent.mkdir(parents=True)
        file.write_text("{")
    check_done(cli("report", "--claims", "all", f"output_dir={outputs}"))
    for row in csv.DictReader((outputs / "reports" / "claims.csv").open()):
        assert row["outcome"] == (UNKNOWN if row["experiment"] == "isobn_ev" else NOT_RUN)


def test_changed_rows_or_descriptions_of_an_analysis_are_unknown(tmp_path):
    claim = next(claim for claim in CLAIMS if claim.rows_file)
    file, description = tmp_path / f"{claim.rows_file}.parquet", tmp_path / "about.json"
    write_table(tmp_path, claim.rows_file, make_table([{"x": 1.0}]))
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest()}
    about = json.dumps(add_json_checksum({"sha256": digests, "scale": {"differs": ["x"]}}))
    description.write_text(about)
    assert read_claimed_rows(tmp_path, claim.rows_file) == ([{"x": 1.0}], ["x"])
    for text, value in ((about.replace('["x"]', '["y"]'), 1.0), (about, 2.0)):
        description.write_text(text)
        write_table(tmp_path, claim.rows_file, make_table([{"x": value}]))
        outcome, _ = judge_claim(claim, None, lambda _, name: read_claimed_rows(tmp_path, name))
        assert outcome.word == UNKNOWN
