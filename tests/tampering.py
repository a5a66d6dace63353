"""Ways to tamper with an output folder or a bundle, each seeded; most can also repair the checksums that tell of it.

A way takes a generator of random numbers, the folder and whether to repair; it changes one thing.
"""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import yaml
from made_up_runs import write_manifest

from isobench.common.checksums import add_json_checksum, add_text_checksum, check_text_checksum
from isobench.common.files import sha256_file
from isobench.runs.record_file import format_record
from isobench.verification.ledger import FAILS
from isobench.verification.verify import Options, verify

Way = Callable[[random.Random, Path, bool], None]
DECIDING = ("optimization.lr", "optimization.batch_size", "optimization.warmup", "seed", "task.max_length")


def choose_run(rng: random.Random, folder: Path) -> Path:
    return rng.choice(sorted((folder / "runs").iterdir()))


def edit_record(run: Path, change: Callable[[dict], None], repair: bool) -> None:
    """Change a record's content; with ``repair`` its checksum is that of the new content."""
    file = run / "result.json"
    old = json.loads(file.read_text())
    content = json.loads(file.read_text())
    change(content)
    assert content != old
    file.write_bytes(format_record(content) if repair else json.dumps(content, indent=1).encode() + b"\n")


def edit_number(rng: random.Random, value: float) -> float:
    """Change one digit of a number, after the point."""
    text = f"{value:.6f}"
    place = rng.randrange(text.index(".") + 1, len(text))
    return float(text[:place] + str((int(text[place]) + rng.randrange(1, 10)) % 10) + text[place + 1 :])


def change_score(rng, folder, repair):
    def change(content):
        number = content["best"]["epoch"]
        for epoch in (content["best"], *content["history"]):
            if epoch["epoch"] == number:
                score = edit_number(random.Random(seed), epoch["score"])
                epoch |= {"score": score, "selection": score}
                epoch["validation"] |= {content["config"]["task"]["primary"]: score}

    seed = rng.random()
    edit_record(choose_run(rng, folder), change, repair)


def change_isotropy(rng, folder, repair):
    def change(content):
        number = content["best"]["epoch"]
        for epoch in (content["best"], *content["history"]):
            if epoch["epoch"] == number:
                epoch["isotropy"]["embedding/ev1"] = edit_number(
                    random.Random(seed), epoch["isotropy"]["embedding/ev1"]
                )

    seed = rng.random()
    edit_record(choose_run(rng, folder), change, repair)


def change_fingerprint(rng, folder, repair):
    part = rng.choice(["data", "encoder"])

    def change(content):
        hashes = content[part]["fingerprint"]
        name = rng.choice(sorted(hashes))
        hashes[name] = hashes[name][::-1]

    edit_record(choose_run(rng, folder), change, repair)


def change_seeds(rng, folder, repair):
    stream = rng.choice(["init", "order", "dropout"])
    edit_record(choose_run(rng, folder), lambda content: content["seeds"].update({stream: 7}), repair)


def hide_scale(rng, folder, repair):
    edit_record(choose_run(rng, folder), lambda content: content["scale"].update({"differs": []}), repair)


def edit_predictions(rng, folder, column, repair) -> None:
    """Change one example's label or prediction; with ``repair`` the record has the new sum."""
    run = choose_run(rng, folder)
    file = run / "predictions.parquet"
    table = pyarrow.parquet.read_table(file)
    rows = table.to_pylist()
    row = rng.choice(rows)
    row[column] = 1 - row[column]
    if column == "prediction":
        row["logits"] = row["logits"][::-1]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=table.schema), file)
    if repair:
        edit_record(run, lambda content: content["predictions"].update({"sha256": sha256_file(file)}), True)


def change_prediction(rng, folder, repair):
    edit_predictions(rng, folder, "prediction", repair)


def change_label(rng, folder, repair):
    edit_predictions(rng, folder, "label", repair)


def change_config(rng, folder, repair):
    """With ``repair`` both copies of the config are changed, with their checksums."""
    run, name = choose_run(rng, folder), rng.choice(DECIDING)

    def change(content):
        section = content["config"] if repair else content
        *path, last = name.split(".")
        for part in path:
            section = section[part]
        section[last] = section[last] * 2 + (1 if name == "seed" else 0)

    config = {"config": yaml.safe_load(check_text_checksum((run / "config.yaml").read_text(), run.name))}
    if not repair:
        change(config["config"])
        (run / "config.yaml").write_text(yaml.safe_dump(config["config"], sort_keys=False))
        return
    change(config)
    text = yaml.safe_dump(config["config"], sort_keys=False)
    (run / "config.yaml").write_text(add_text_checksum(text, run.name))
    edit_record(run, change, True)


def swap_files(rng, folder, repair):
    """Exchange a file of two runs whose scores differ; with ``repair`` the records have the predictions' new sums."""
    runs = sorted((folder / "runs").iterdir())
    scores = {run: json.loads((run / "result.json").read_text())["best"]["score"] for run in runs}
    first = rng.choice(runs)
    second = rng.choice([run for run in runs if scores[run] != scores[first]])
    name = rng.choice(["result.json", "config.yaml", "predictions.parquet"])
    texts = [(run / name).read_bytes() for run in (second, first)]
    for run, text in zip((first, second), texts, strict=True):
        (run / name).write_bytes(text)
        if repair and name == "predictions.parquet":
            sha256 = sha256_file(run / name)
            edit_record(run, lambda content, own=sha256: content["predictions"].update({"sha256": own}), True)


def delete_run(rng, folder, repair):
    shutil.rmtree(choose_run(rng, folder))


def change_table(rng, folder, repair):
    """Change a digit of a table: in Markdown, LaTeX, CSV or the page."""
    report = next(iter(sorted(folder.glob("report*/runs")) or [folder / "report"]))
    file = report / rng.choice(["report.md", "tables.tex", "runs.csv", "epochs.csv", "report.html"])
    text = file.read_text()
    digits = [match.start() for match in re.finditer(r"\d", text)]
    place = rng.choice(digits)
    file.write_text(f"{text[:place]}{(int(text[place]) + rng.randrange(1, 10)) % 10}{text[place + 1 :]}")


def change_rows(rng, folder, repair):
    """Change a value of the tidy rows."""
    report = next(iter(sorted(folder.glob("report*/runs")) or [folder / "report"]))
    file = report / f"{rng.choice(['runs', 'epochs'])}.parquet"
    table = pyarrow.parquet.read_table(file)
    rows = table.to_pylist()
    rng.choice(rows)["score"] += rng.choice([0.01, 1.0, -0.5])
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=table.schema), file)


def replace_by_link(rng, folder, repair):
    file = choose_run(rng, folder) / rng.choice(["result.json", "config.yaml", "predictions.parquet"])
    file.unlink()
    file.symlink_to("/etc/hostname")


def find_report(folder: Path) -> Path:
    return next(iter(sorted(folder.glob("report*/runs")) or [folder / "report"]))


def claim_another_version(folder: Path) -> None:
    """Say in report.json that another commit made the report, with a checksum that fits."""
    file = find_report(folder) / "report.json"
    content = json.loads(file.read_text())
    del content["checksum"]
    content["code"]["git"]["commit"] = "0" * 40
    file.write_text(json.dumps(add_json_checksum(content)))


def exchange(file: Path, first: str, second: str) -> None:
    """Exchange two words of a text; each of them must be there."""
    text = file.read_text()
    assert first in text
    assert second in text
    file.write_text(text.replace(first, "\0").replace(second, first).replace("\0", second))


def exchange_means(report):
    for name in ("report.md", "tables.tex", "report.html"):
        exchange(report / name, "67.50", "60.00")


def exchange_names_in_csv(report):
    exchange(report / "runs.csv", '"none"', '"isobn_paper"')


def add_script(report):
    file = report / "report.html"
    file.write_text(file.read_text().replace("</body>", "<script>document.title = 'x'</script></body>"))


def add_handler(report):
    file = report / "report.html"
    file.write_text(file.read_text().replace("<table", "<table onmouseover=alert()", 1))


def load_from_elsewhere(report):
    file = report / "report.html"
    file.write_text(file.read_text().replace("</body>", "<img src='https://example.org/x'></body>"))


def replace_page(report):
    (report / "report.html").write_text("<!DOCTYPE html><title>runs</title><p>All is well.</p>")


def cut_markdown(report):
    file = report / "report.md"
    file.write_text("\n".join(file.read_text().splitlines()[:4]))


def change_sign(report):
    file = report / "report.html"
    text = file.read_text()
    assert re.search(r"[-\u2212]7\.50", text)
    file.write_text(re.sub(r"[-\u2212]7\.50", "+7.50", text))


def cut_rows(report):
    file = report / "runs.parquet"
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(file).select(["key", "status"]), file)


def add_column(report):
    file = report / "runs.parquet"
    table = pyarrow.parquet.read_table(file)
    pyarrow.parquet.write_table(table.append_column("corrected", pyarrow.array([99.0] * len(table))), file)


# Ways to change a report and keep its numbers, which are tried on a report that says that another version made it.
REPORT_WAYS: dict[str, Callable[[Path], None]] = {
    way.__name__: way
    for way in (
        exchange_means, exchange_names_in_csv, add_script, add_handler, load_from_elsewhere, replace_page,
        cut_markdown, change_sign, cut_rows, add_column,
    )
}  # fmt: skip


WAYS: dict[str, Way] = {
    way.__name__: way
    for way in (
        change_score, change_isotropy, change_fingerprint, change_seeds, hide_scale, change_prediction, change_label,
        change_config, swap_files, delete_run, change_table, change_rows, replace_by_link,
    )
}  # fmt: skip


def tamper(name: str, seed: int, folder: Path, repair: bool) -> None:
    """Change one thing in a folder; with ``repair`` also every checksum that tells of it, the manifest's too."""
    WAYS[name](random.Random(f"{name} {seed}"), folder, repair)
    if repair and (folder / "manifest.json").exists() and name != "replace_by_link":
        write_manifest(folder)


def change_data_row(rng: random.Random, root: Path) -> None:
    """Change one sentence of the data."""
    file = rng.choice(sorted(root.glob("glue/sst2/*.parquet")))
    table = pyarrow.parquet.read_table(file)
    rows = table.to_pylist()
    rng.choice(rows)["sentence"] += " !"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=table.schema), file)


def change_byte(rng: random.Random, file: Path) -> None:
    """Change one byte of a file."""
    content = bytearray(file.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(bytes(content))


def list_failures(folder: Path, options: Options | None = None) -> list[str]:
    """Verify a folder and return its failures in words."""
    ledger = verify(folder, options or Options())
    assert ledger.has_failed == any(ledger.list_entries(FAILS))
    return [f"{entry.subject} {entry.check}: {entry.text}" for entry in ledger.list_entries(FAILS)]
