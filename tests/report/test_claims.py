"""The papers' claims: their commands, and the page over an output folder. test_checks.py has the checks."""

import csv
import hashlib
import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest
from helpers import ROOT, check_done
from made_up_report import PLAIN, make_report, make_runs

from isobench.analyses.rows import read_claimed_rows
from isobench.common.errors import UserError
from isobench.common.files import add_json_checksum, write_json
from isobench.common.tidy import make_table, write_table
from isobench.config.command_line import MULTIRUN_FLAGS
from isobench.papers.folders import find_config
from isobench.report import checks
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
from isobench.report.printed import build_printed_report
from isobench.runs.grouping import read_run_names
from isobench.sweep.find_runs import find_runs
from isobench_papers.isotropy_calibration import checks as paper_checks

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


FAULTS = {
    "has no broken numbers": {"broken": {}},
    "by broken numbers (the same) it is 'holds': x": {"broken": {"the same": lambda: ROWS}},
    "by broken numbers (all) it is 'not run': nothing to compare": {"broken": {"all": list}},
    "isobn_ev has no method batchnorm": {"methods": ["batchnorm", "none"]},
    "isobn_ev has no task rtf": {"tasks": ["rte", "rtf"]},
    "isobn_ev has no encoder bart": {"encoders": ["bart", "bert-base-cased"]},
    "rejects print (x)": {"printed": lambda: WORST},
    "accepts print (x)": {"contradicted": "Table 2"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_claim_is_named_by_its_author_and_does_not_stop_a_users_report(cli, monkeypatch, outputs, fault):
    claims = [make_claim(), make_claim(**FAULTS[fault])]
    monkeypatch.setattr("isobench.report.claims.load_claims", lambda *_: claims)
    code, out, err = cli("report", "--published")
    assert (code, err.count("\n")) == (1, 1)
    assert f'correct isobn, "all are above 0" (Table 1): {fault}' in err
    assert "1 of 2 checks" in out
    outputs.mkdir()
    assert cli("report", f"output_dir={outputs}")[0] == 0
    claims.pop()
    code, out, err = cli("report", "--published")
    assert (code, err, "1 of 1 checks" in out) == (0, "", True)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"check": lambda data: Outcome(FAILS, "")}, FAILS),
        ({"experiment": "isobn_evv"}, UNKNOWN),
        ({"printed": lambda: [{"encoder": "bert"}]}, UNKNOWN),  # it lacks columns
    ],
)
def test_a_check_that_rejects_its_paper_or_names_what_is_not_there_is_a_fault(changes, word):
    claim = make_claim(**changes)
    assert judge_print(claim).word == word
    assert find_faults(claim)


def test_a_claim_may_say_that_the_papers_own_numbers_contradict_it(cli, monkeypatch):
    claim = make_claim(printed=lambda: WORST, contradicted="Table 2")
    assert judge_print(claim).word == FAILS
    assert find_faults(claim) == []
    monkeypatch.setattr("isobench.report.claims.load_claims", lambda *_: [claim])
    check_done(cli("report", "--published"))


def test_made_up_rows_have_the_names_that_print_without_numbers_lacks():
    broken = {"none is": lambda: [row | {"method": "raw"} for row in WORST]}
    claim = make_claim(printed="a figure", methods=["raw"], broken=broken)
    assert find_faults(claim) == []
    assert find_faults(replace(claim, methods=["rwa"]))


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
    def judge(**changes):
        return judge_claim(make_claim(printed="a figure", **changes), None, lambda *_: (ROWS, []))[0]

    assert judge(methods=["bn"], tasks=["rte"], encoders=["bert-base-cased"]) == (HOLDS, "x")
    assert judge(methods=["bn", "flow"], tasks=["rte", "cola"]) == (UNDECIDED, "x; not measured: flow, cola")
    assert judge(methods=["flow"], check=lambda rows: Outcome(FAILS, "x")).word == UNDECIDED


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


@pytest.mark.slow
def test_the_shipped_runs_of_an_untrained_bart_judge_no_claim_on_translation_or_summarisation(cli, outputs):
    papers = ROOT / "experiments" / "isotropy_calibration"
    for name in ("mt_calibration", "summarization_calibration"):
        assert cli("import", str(papers / "results" / name), f"output_dir={outputs}")[0] == 0
    assert cli("report", f"output_dir={outputs}", "--claims", "isotropy_calibration")[0] == 0
    rows = list(csv.DictReader((outputs / "reports" / "claims_isotropy_calibration.csv").open()))
    outcomes = {
        (row["experiment"] in ("mt_calibration", "summarization_calibration"), row["outcome"]) for row in rows
    }
    assert outcomes == {(True, NOT_JUDGED), (False, NOT_RUN)}


def test_a_papers_claims_are_listed_before_anything_was_run(cli, outputs):
    code, out, _ = cli("report", f"output_dir={outputs}", "--claims", "isotropy_calibration")
    claims = load_claims("isotropy_calibration")
    assert (code, out.count("not run"), outputs.exists()) == (0, len(claims), False)
    for arguments in ([f"output_dir={outputs}"], ["--published"]):
        code, out, err = cli("report", *arguments, "--claims", "isotropy_calibratoin")
        assert (code, out, "isotropy_calibratoin" in err) == (2, "", True)


def test_a_check_whose_code_fails_is_unknown_and_blames_the_claims_file():
    def fail(data):
        raise ZeroDivisionError("division by zero")

    claim = next(claim for claim in CLAIMS if claim.experiment == "glue_isobn" and not isinstance(claim.printed, str))
    report = claim.printed()
    for check in (fail, lambda _: None, lambda _: Outcome("holdz", "x"), lambda _: Outcome(HOLDS, 3)):
        broken = replace(claim, check=check)
        for outcome in (judge_print(broken), judge_claim(broken, lambda _: report, None)[0]):
            assert (outcome.word, outcome.numbers.startswith("claims.py of isobn: its check")) == (UNKNOWN, True)
    for paper, table, hint in (("isobn", "table9", "table1"), ("isobm", "table1", "isobn")):
        broken = replace(
            claim, printed=lambda paper=paper, table=table: build_printed_report(paper, [table], seeds=3)
        )
        assert judge_print(broken).word == UNKNOWN
        assert hint in judge_print(broken).numbers


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
    of_anything = {"methods": (), "tasks": (), "encoders": ()}
    claim = next(claim for claim in CLAIMS if claim.experiment == "isobn_ev")
    claim = replace(claim, check=lambda _: Outcome(HOLDS, "1"), **of_anything)
    whole = claim.printed()
    one = [row for row in whole if row["encoder"] == "bert-base-cased"]
    assert judge_claim(claim, None, lambda *_: (whole, []))[0] == (HOLDS, "1")
    outcome, _ = judge_claim(claim, None, lambda *_: (one, []))
    assert outcome.word == UNDECIDED
    assert outcome.numbers.startswith("1; not measured: roberta-large, mrpc, none; roberta-large, mrpc, batch_norm;")
    most = [row for row in whole if (row["encoder"], row["task"], row["method"]) != ("roberta-large", "rte", "none")]
    missing = (UNDECIDED, "1; not measured: roberta-large, rte, none")
    assert judge_claim(claim, None, lambda *_: (most, []))[0] == missing
    in_a_figure = replace(
        claim, printed="a figure", broken={"none": lambda: whole}
    )  # what is made up says what counts
    assert judge_claim(in_a_figure, None, lambda *_: (most, []))[0] == missing
    outcome = judge_claim(replace(claim, unstated="constants"), None, lambda *_: (whole, []))
    assert outcome == (("seen here", "1"), "constants")
    claim = next(claim for claim in CLAIMS if claim.experiment == "glue_isobn")
    claim = replace(claim, check=lambda _: Outcome(FAILS, "1"), **of_anything)
    report = claim.printed()
    assert judge_claim(claim, lambda _: report, None)[0].word == FAILS
    some = replace(report, runs=report.runs[report.runs["task"] != "mnli"])
    outcome, _ = judge_claim(claim, lambda _: some, None)
    assert outcome.word == UNDECIDED
    assert outcome.numbers.startswith(
        "1; not measured: bert-base-cased, mnli, none; bert-base-cased, mnli, isobn_paper;"
    )
    is_one = (report.runs["method"] == "isobn_released") & (report.runs["task"] == "mnli")
    outcome, _ = judge_claim(claim, lambda _: replace(report, runs=report.runs[~is_one]), None)
    left_out = "bert-base-cased, mnli, isobn_released; roberta-large, mnli, isobn_released"
    assert outcome == (UNDECIDED, f"1; not measured: {left_out}")  # the other methods have the task


def test_every_claim_quotes_its_paper(papers):
    files = {
        "isobn": "isobn_aaai2021", "isobn_arxiv_v1": "isobn_arxiv_v1", "isotropy_calibration": "isotropy_calibration",
        "task_adaptation": "efficient_task_adaptation", "too_much_in_common": "too_much_in_common",
    }  # fmt: skip

    def simplify(text):
        return re.sub(r"[^a-z0-9]", "", re.sub(r"\\mathrm|\\text|<code>|</code>|\b\d{3}\b", "", text.lower()))

    texts = {paper: simplify((papers / f"{name}.txt").read_text()) for paper, name in files.items()}
    for claim in CLAIMS:
        if claim.paper in texts:
            parts = map(simplify, claim.quote.split(" ... "))
            assert all(part in texts[claim.paper] for part in parts), claim.quote


def test_every_claim_names_an_experiment_that_is_there():
    assert all(find_config("experiment", claim.experiment) for claim in CLAIMS)
    papers = {file.parent.name for file in ROOT.glob("experiments/*/published.yaml")}
    assert {claim.paper for claim in CLAIMS} == papers | {"istar"}


def test_the_documentation_describes_every_check():
    text = (ROOT / "docs" / "reference" / "claims.md").read_text()
    public = [
        name
        for module in (checks, paper_checks)
        for name, member in vars(module).items()
        if name.islower() and callable(member) and member.__module__ == module.__name__
    ]
    missing = [name for name in public if not name.startswith("_") and f"**{name}**" not in text]
    assert set(missing) == {"judge_cases", "list_collapses", "pool_correlations", "read_arm", "group_pairs"}
    assert f"ends below {checks.RELEVANT_GAIN:g} point" in text


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


def test_a_claim_that_lacks_runs_names_its_own_command(tmp_path):
    lacking = [
        claim for claim in CLAIMS if "a modified version" in claim.text or "Subtracting the mean" in claim.text
    ]
    for claim, method in zip(lacking, ("isobn_original", "[center,isobn_paper]"), strict=True):
        for found in (None, make_report(*make_runs("none", [50.0]))):
            outcome, _ = judge_claim(claim, lambda experiment, found=found: found, None)
            assert outcome.word == NOT_RUN
            assert outcome.numbers.endswith(claim.command)
            assert method in claim.command


@pytest.mark.slow
def test_the_page_of_claims_over_what_was_run(cli, small, outputs):
    code, _, err = cli("report", f"output_dir={outputs}")
    assert (code, f"{outputs} does not exist: nothing was run there; set output_dir=FOLDER" in err) == (2, True)
    assert not outputs.exists()
    outputs.mkdir()
    code, out, _ = cli("report", f"output_dir={outputs}")
    assert (code, out.count("not run")) == (0, len(CLAIMS))  # nothing was run, nothing is made up
    settings = (*small, "task.name=rte", "encoder.pooling=cls", "task.train_samples=100")  # the claim names RTE
    assert cli("+experiment=isobn_ev", *settings)[0] == 0
    code, out, _ = cli("report", f"output_dir={outputs}")
    assert code == 0
    assert "encoder local is not the paper's" in out.replace("\n", " ")
    rows = list(csv.DictReader((outputs / "reports" / "claims.csv").open()))
    assert len(rows) == len(CLAIMS)
    judged = [claim for claim in CLAIMS if claim.experiment == "isobn_ev" and not claim.encoders]  # ours is another
    assert sum(row["outcome"] == NOT_RUN for row in rows) == len(CLAIMS) - len(judged)
    page = (outputs / "reports" / "claims.html").read_text()
    assert page.count("Not the paper's setting: ") == len(judged)
    assert (outputs / "reports" / "claims.md").read_text().count("\n| ") == len(CLAIMS) + 2


@pytest.mark.slow
def test_rows_that_can_not_be_read_are_unknown_and_a_damaged_plan_is_named(cli, outputs):
    (outputs / "plans").mkdir(parents=True)
    (outputs / "plans" / "x.json").write_text("{")
    damaged = outputs / "reports" / "isobn_ev"
    damaged.mkdir(parents=True)
    (damaged / "about.json").write_text("{")
    code, _, err = cli("report", f"output_dir={outputs}")
    assert code == 0
    assert err.count("x.json") == 1
    for row in csv.DictReader((outputs / "reports" / "claims.csv").open()):
        is_damaged = row["experiment"] == "isobn_ev"
        assert row["outcome"] == (UNKNOWN if is_damaged else NOT_RUN)


def test_changed_rows_or_descriptions_of_an_analysis_are_unknown(tmp_path):
    claim = next(claim for claim in CLAIMS if claim.rows_file)
    write_table(tmp_path, claim.rows_file, make_table([{"x": 1.0}]))
    file = tmp_path / f"{claim.rows_file}.parquet"
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest()}
    about = json.dumps(add_json_checksum({"sha256": digests, "scale": {"differs": ["x"]}}))
    (tmp_path / "about.json").write_text(about)
    assert read_claimed_rows(tmp_path, claim.rows_file) == ([{"x": 1.0}], ["x"])
    (tmp_path / "about.json").write_text(about.replace('["x"]', '["y"]'))
    outcome, _ = judge_claim(claim, None, lambda _, name: read_claimed_rows(tmp_path, name))
    assert (outcome.word, "checksum is not that of its content" in outcome.numbers) == (UNKNOWN, True)
    (tmp_path / "about.json").write_text(about)
    write_table(tmp_path, claim.rows_file, make_table([{"x": 2.0}]))
    outcome, _ = judge_claim(claim, None, lambda _, name: read_claimed_rows(tmp_path, name))
    assert outcome.word == UNKNOWN
    assert "was changed after the analysis wrote it; run the analysis again" in outcome.numbers


@pytest.mark.parametrize("changes", [{"experiment": "isobn_evv"}, {"rows_file": "explaned_variance"}])
def test_a_claim_with_a_misspelt_name_is_unknown(tmp_path, changes):
    (tmp_path / "isobn_ev").mkdir()
    write_json(tmp_path / "isobn_ev" / "about.json", {"sha256": {"explained_variance.parquet": ""}})
    claim = next(claim for claim in CLAIMS if claim.experiment == "isobn_ev" and claim.rows_file)
    outcome, _ = judge_claim(
        replace(claim, **changes), None, lambda experiment, name: read_claimed_rows(tmp_path / experiment, name)
    )
    assert outcome.word == UNKNOWN


def test_an_impossible_selection_is_unknown_and_said(tmp_path):
    def impossible(experiment):
        raise UserError("experiment.selection.rule=magic is not known")

    claim = next(claim for claim in CLAIMS if not claim.rows_file)
    assert judge_claim(claim, impossible, None)[0] == (UNKNOWN, "experiment.selection.rule=magic is not known")
    assert judge_claim(claim, lambda experiment: None, None)[0].word == NOT_RUN


@pytest.mark.slow
def test_the_report_of_a_sweep_end_to_end(cli, small, outputs):
    sweep = [*small, "-m", "calibration=none,isobn_paper", "seed=1,2"]
    code, _, err = cli("report", "+experiment=glue_isobn", f"output_dir={outputs}")
    assert (code, err.count("\n")) == (2, 1)
    assert cli("+experiment=glue_isobn", *sweep)[0] == 0
    code, out, err = cli("report", "+experiment=glue_isobn", f"output_dir={outputs}")
    assert code == 0, err
    folder = outputs / "reports" / "glue_isobn"
    names = {"report.html", "report.md", "tables.tex"} | {
        f"{n}.{k}" for n in ("runs", "epochs", "cells") for k in ("csv", "parquet")
    }
    assert {file.name for file in folder.iterdir()} == names
    rows = list(csv.DictReader((folder / "runs.csv").open()))
    assert len(rows) == 4
    assert {row["status"] for row in rows} == {"finished"}
    epochs = list(csv.DictReader((folder / "epochs.csv").open()))
    assert [row["epoch"] for row in epochs] == ["0", "1", "2"] * 4  # 0: before the first step
    page = (folder / "report.html").read_text()
    for text in ("isobn_paper", "Not the paper", "of 4</strong> runs done"):
        assert text in page
    assert "Selection: " in out
