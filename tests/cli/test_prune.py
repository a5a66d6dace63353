"""Prune lists the runs that nothing produces any more, and no other folder."""

from isobench.cli.prune import find_orphan_runs

FOREIGN = ["backup", "ab" * 8 + ".bak", "AB" * 8, "ab" * 7, "xy" * 8, ".git"]


def test_a_folder_that_is_no_run_is_never_listed(tmp_path):
    for name in ["ab" * 8, *FOREIGN]:
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / ("cd" * 8)).write_text("a file")
    ((folder, reason),) = find_orphan_runs(str(tmp_path))
    assert folder == tmp_path / "runs" / ("ab" * 8)
    assert reason == "its config can't be read, or is not valid any more"
