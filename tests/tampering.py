"""Ways to tamper with the runs of an output folder or of a bundle, each seeded, and to repair what tells of it.

A way takes a generator of random numbers, the folder and whether to repair; it changes one thing. The checksums of a
bundle are always repaired: any other change of it is a file with another sha256.
"""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
from bundle_tools import edit_rows, editable, list_best_epochs, write_signed_json

from isobench.common.files import sha256_file
from isobench.metrics.task import evaluate_predictions
from isobench.runs.record import format_record
from isobench.verification.folder import FAILS
from isobench.verification.reproduction import Options
from isobench.verification.verify import verify

Way = Callable[[random.Random, Path, bool], None]
DECIDING = ("optimization.lr", "optimization.batch_size", "optimization.warmup", "seed", "task.max_length")


def rewrite_predictions(run: Path, change: Callable[[list[dict]], None]) -> None:
    """Change a run's predictions, and its record to what they say then."""
    file = run / "predictions.parquet"
    edit_rows(file, change)
    table = pyarrow.parquet.read_table(file)

    def follow(content):
        both = (table[name].to_numpy() for name in ("label", "prediction"))
        metrics = evaluate_predictions(content["config"]["task"]["metrics"], *both)
        score = metrics[content["config"]["task"]["primary"]]
        content["predictions"]["sha256"] = sha256_file(file)
        for epoch in list_best_epochs(content):
            epoch |= {"score": score, "selection": score}
            epoch["validation"] |= metrics | {"constant_predictor": False}

    edit_record(run, follow, repair=True)


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
        for epoch in list_best_epochs(content):
            score = edit_number(random.Random(seed), epoch["score"])
            epoch |= {"score": score, "selection": score}
            epoch["validation"] |= {content["config"]["task"]["primary"]: score}

    seed = rng.random()
    edit_record(choose_run(rng, folder), change, repair)


def change_isotropy(rng, folder, repair):
    def change(content):
        for epoch in list_best_epochs(content):
            isotropy = epoch["isotropy"]
            isotropy["embedding/isoscore"] = edit_number(random.Random(seed), isotropy["embedding/isoscore"])

    seed = rng.random()
    edit_record(choose_run(rng, folder), change, repair)


def strip_checksum(rng, folder, repair):
    """Call a record one of a format that had no checksums."""
    file = choose_run(rng, folder) / "result.json"
    content = json.loads(file.read_text())
    del content["checksum"]
    file.write_text(json.dumps(content | {"format": rng.choice([2, 3])}, indent=1))


def drop_predictions(rng, folder, repair):
    (choose_run(rng, folder) / "predictions.parquet").unlink()


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


def change_prediction(rng, folder, repair, column="prediction"):
    """Change one example's prediction or label; with ``repair`` the record has the new sum."""

    def change(rows):
        row = rng.choice(rows)
        row[column] = 1 - row[column]
        if column == "prediction":
            row["logits"] = row["logits"][::-1]

    run = choose_run(rng, folder)
    file = run / "predictions.parquet"
    edit_rows(file, change)
    if repair:
        edit_record(run, lambda content: content["predictions"].update({"sha256": sha256_file(file)}), True)


def change_label(rng, folder, repair):
    change_prediction(rng, folder, repair, "label")


def change_config(rng, folder, repair):
    name = rng.choice(DECIDING)

    def change(content):
        section = content["config"]
        *path, last = name.split(".")
        for part in path:
            section = section[part]
        section[last] = section[last] * 2 + (1 if name == "seed" else 0)

    edit_record(choose_run(rng, folder), change, repair)


def swap_files(rng, folder, repair):
    """Exchange a file of two runs whose scores differ; with ``repair`` the records have the predictions' new sums."""
    runs = sorted((folder / "runs").iterdir())
    scores = {run: json.loads((run / "result.json").read_text())["best"]["score"] for run in runs}
    first = rng.choice(runs)
    second = rng.choice([run for run in runs if scores[run] != scores[first]])
    name = rng.choice(["result.json", "predictions.parquet"])
    texts = [(run / name).read_bytes() for run in (second, first)]
    for run, text in zip((first, second), texts, strict=True):
        (run / name).write_bytes(text)
        if repair and name == "predictions.parquet":
            sha256 = sha256_file(run / name)
            edit_record(run, lambda content, own=sha256: content["predictions"].update({"sha256": own}), True)


def delete_run(rng, folder, repair):
    shutil.rmtree(choose_run(rng, folder))


def change_plan(rng, folder, repair):
    """Change a setting of a planned run; a bundle alone has a plan of its own."""
    file = folder / "plan.json"
    content = json.loads(file.read_text())
    content["settings"]["optimization"][0]["lr"] *= rng.choice([2, 3])
    write_signed_json(file, content) if repair else file.write_text(json.dumps(content))


def replace_by_link(rng, folder, repair):
    file = choose_run(rng, folder) / rng.choice(["result.json", "predictions.parquet"])
    file.unlink()
    file.symlink_to("/etc/hostname")


WAYS: dict[str, Way] = {
    way.__name__: way
    for way in (
        change_score, change_isotropy, change_fingerprint, change_seeds, hide_scale, change_prediction, change_label,
        change_config, change_plan, swap_files, delete_run, replace_by_link, strip_checksum, drop_predictions, )
}  # fmt: skip
# An output folder may lack any run and its predictions, and a sweep writes its plan again.
OF_BUNDLES = {"change_plan", "delete_run", "drop_predictions"}
NOT_IN_PREDICTIONS = {"change_isotropy", "delete_run"}  # of these only training again tells
CASES = [
    *((name, "bundle", True) for name in WAYS if name not in NOT_IN_PREDICTIONS | {"replace_by_link"}),
    *((name, "outputs", False) for name in WAYS if name not in OF_BUNDLES),
    *((name, "outputs", True) for name in WAYS if name not in OF_BUNDLES | NOT_IN_PREDICTIONS),
]


def tamper(name: str, seed: int, folder: Path, repair: bool) -> None:
    """Change one thing in a folder; with ``repair`` also every checksum that tells of it."""
    with editable(folder) as place:
        WAYS[name](random.Random(f"{name} {seed}"), place, repair)


def change_data_row(rng: random.Random, root: Path) -> None:
    """Change one sentence of the data."""
    file = rng.choice(sorted(root.glob("glue/sst2/*.parquet")))
    edit_rows(file, lambda rows: rng.choice(rows).update(sentence="!"))


def change_byte(rng: random.Random, file: Path) -> None:
    """Change one byte of a file."""
    content = bytearray(file.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(bytes(content))


def list_failures(folder: Path, options: Options | None = None) -> list[str]:
    """Verify a folder and return its failures in words."""
    outcomes = verify(folder, options or Options())
    assert outcomes.has_failed == any(outcomes.list_entries(FAILS))
    return [f"{entry.subject} {entry.check}: {entry.text}" for entry in outcomes.list_entries(FAILS)]
