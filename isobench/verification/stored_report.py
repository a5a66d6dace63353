"""Compare the stored files of a report with what the records give, and note the outcomes."""

import pyarrow

from isobench.common.errors import extract_first_line
from isobench.verification.folder import VerifiedFolder
from isobench.verification.ledger import Ledger
from isobench.verification.report_text import (
    find_active_part,
    find_forged_content,
    find_lost_table,
    find_text_difference,
    read_tables,
)
from isobench.verification.stored_table import (
    SELECTION_COLUMNS,
    find_table_difference,
    parse_csv,
    read_stored_table,
)

OTHER_VERSION = "another version made it: verify with that version to be sure"


def compare_file(
    folder: VerifiedFolder, name: str, expected: pyarrow.Table | bytes, is_same_code: bool, ledger: Ledger
) -> None:
    """Compare a stored file with what the records give.

    Another version of isobench may word a text otherwise. Then the rows of its tables must be the same, and its other
    words are not checked. Tidy rows must have the same columns and values in any version.
    """
    try:
        if not isinstance(expected, bytes):
            problem, is_harmless = find_table_difference(read_stored_table(folder, name), expected)
        elif (stored := folder.read(name)) == expected:
            problem, is_harmless = None, True
        elif is_same_code:
            problem, is_harmless = find_text_difference(stored, expected), False
        elif name.endswith(".csv"):
            problem, is_harmless = find_table_difference(parse_csv(stored), parse_csv(expected))
            problem = problem or "its cells are the same, written otherwise"
        elif (problem := find_forged_content(name, stored, expected)) is None:
            ledger.skip(name, "tables", "another version made it: its tables agree, its other words are not compared")
            return
        else:
            is_harmless = False
    except FileNotFoundError as error:
        ledger.fail(name, "tables", f"{extract_first_line(error)}")
        return
    except Exception as error:  # a damaged or foreign file may raise anything
        ledger.fail(name, "tables", f"it can't be used: {extract_first_line(error)}")
        return
    if problem is None:
        ledger.hold(name, "tables")
    elif is_same_code:
        ledger.fail(name, "tables", problem)
    elif is_harmless:
        ledger.differ(name, "tables", f"another version made it: {problem}")
    else:
        ledger.fail(name, "tables", f"{problem}; {OTHER_VERSION}")


def compare_rows(name: str, stored: pyarrow.Table, expected: pyarrow.Table, ledger: Ledger) -> None:
    """Compare some rows of a table in the columns that both have, and that do not depend on the other rows."""
    shared = [own for own in stored.column_names if own in expected.column_names and own not in SELECTION_COLUMNS]
    problem, _ = find_table_difference(stored.select(shared), expected.select(shared))
    ledger.judge(name, "tables", [problem] if problem else [])


def compare_unpaired_text(
    folder: VerifiedFolder, name: str, expected: bytes, unpaired: bytes, ledger: Ledger
) -> None:
    """Compare the tables of a text that do not depend on predictions, some of which were removed.

    Args:
        folder: the verified folder.
        name: of the text's file.
        expected: the text that the records and the predictions that are left give.
        unpaired: the text that the records give without predictions. A table that is in both does not depend on them.
        ledger: where the outcome goes.
    """
    try:
        stored = folder.read(name)
        if stored == expected:
            ledger.hold(name, "tables")
            return
        known = read_tables(name, unpaired)
        independent = [table for table in read_tables(name, expected) if table in known]
        problem = find_lost_table(read_tables(name, stored), independent) or find_active_part(stored, expected)
    except Exception as error:  # a damaged or foreign file may raise anything
        problem = f"it can't be used: {extract_first_line(error)}"
    if problem:
        ledger.fail(name, "tables", problem)
    else:
        text = "it compares runs by predictions, and some are removed: only its other tables are compared"
        ledger.skip(name, "tables", text)
