"""Define what "On Isotropy Calibration of Transformers" claims, and judge each claim."""

from isobench.report.checks import (
    collapses,
    costs_between,
    costs_times,
    isotropy_is_unrelated,
    judge_among,
    nothing_improves,
)
from isobench.report.claims import Claim

FEW_SAMPLE = "judged with DistilBERT and 1,000 examples of each task"
SPECTRUM = ("spectrum_polynomial", "spectrum_exponential")
COLLAPSED = ("spectrum_polynomial_collapsed", "spectrum_exponential_collapsed")
COLLAPSED_I2 = 0.002  # largest I2 in Table 4 beside a score of one class in Table 1 (MRPC, CoLA, WNLI, STS-B)
GPU = "Titan RTX"  # the paper's times were measured on it

CLAIMS = [
    Claim("No calibration improves fine-tuning (Table 1)", "glue_calibration", nothing_improves),
    Claim("Isotropy does not correlate with the task's score (Section 4)", "glue_calibration", isotropy_is_unrelated),
    Claim(
        f"Cosine regularisation does not improve fine-tuning (Table 1), {FEW_SAMPLE}",
        "glue_few_sample",
        judge_among(nothing_improves, "cosine"),
    ),
    Claim(
        f"Isotropy does not correlate with the task's score (Section 4), {FEW_SAMPLE}",
        "glue_few_sample",
        isotropy_is_unrelated,
    ),
    Claim(
        "Spectrum control that makes the head as isotropic as printed collapses to one class on some tasks "
        "(Tables 1 and 4)",
        "glue_calibration",
        collapses(COLLAPSED_I2, *SPECTRUM, *COLLAPSED),
    ),
    Claim("No calibration improves translation (Table 2)", "mt_calibration", nothing_improves),
    Claim("No calibration improves summarisation (Tables 3 and 5)", "summarization_calibration", nothing_improves),
    Claim(
        "On GLUE, the flow takes 4.2 times the training time (Section 4.1)",
        "glue_calibration",
        costs_times("isotropy_calibration/table1", GPU, 4.2, "flow"),
    ),
    Claim(
        "In translation, the flow takes 10.5 times the training time (Section 4.2)",
        "mt_calibration",
        costs_times("isotropy_calibration/table2", GPU, 10.5, "flow"),
    ),
    Claim(
        "In translation, spectrum control takes 1.25 (Section 4.2) to 1.63 (Table 2) times the training time",
        "mt_calibration",
        costs_between("isotropy_calibration/table2", GPU, 1.25, 1.63, *SPECTRUM),
    ),
    Claim(
        "In summarisation, the flow takes 5.5 times the training time (Section 4.3)",
        "summarization_calibration",
        costs_times("isotropy_calibration/table3", GPU, 5.5, "flow"),
    ),
]
