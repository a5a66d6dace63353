"""A paper's printed stars: by which test they come out, on its printed numbers."""

from scipy import stats

from isobench.papers import published


def test_the_printed_numbers_get_the_marks_that_the_papers_text_names():
    """All 88 pairs of Table 1: two gains by Student's test, none by Welch's; the printed WNLI star is not one."""
    cells = published.load_tables("isotropy_calibration")["table1"].cells
    p, gains = {True: {}, False: {}}, set()
    for encoder, rows in cells.items():
        for row, columns in rows.items():
            for column, (mean, sd) in columns.items():
                if row == "plain" or sd is None:
                    continue
                if mean > rows["plain"][column][0]:
                    gains.add((encoder, row, column))
                for is_students, values in p.items():
                    values[encoder, row, column] = stats.ttest_ind_from_stats(
                        mean, sd, 3, *rows["plain"][column], 3, equal_var=is_students
                    ).pvalue
    student, welch = p[True], p[False]
    assert len(student) == 88
    found = {key for key, value in student.items() if value < 0.05}
    text = {("roberta-base", "cosreg", "MNLI-mm"), ("roberta-base", "spectrum_exp", "WNLI")}
    assert (found & gains, len(found - gains)) == (text, 14)
    assert round(student["roberta-base", "spectrum_exp", "WNLI"], 3) == 0.016
    assert round(student["roberta-base", "spectrum_pol", "WNLI"], 3) == 0.054
    assert all(welch[key] >= 0.05 for key in text)
