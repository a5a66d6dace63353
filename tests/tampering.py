"""Ways to tamper with the runs of an output folder or of a bundle, each seeded.

A way takes a generator of random numbers and the folder. It changes one thing, and every checksum that tells of it.
"""

import json
import random
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

Way = Callable[[random.Random, Path], None]
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

    edit_record(run, follow)


def choose_run(rng: random.Random, folder: Path) -> Path:
    return rng.choice(sorted((folder / "runs").iterdir()))


def edit_record(run: Path, change: Callable[[dict], None]) -> None:
    """Change a record's content; its checksum is that of the new content."""
    file = run / "result.json"
    old = json.loads(file.read_text())
    content = json.loads(file.read_text())
    change(content)
    assert content != old
    file.write_bytes(format_record(content))


def edit_number(rng: random.Random, value: float) -> float:
    """Change one digit of a number, after the point."""
    text = f"{value:.6f}"
    place = rng.randrange(text.index(".") + 1, len(text))
    return float(text[:place] + str((int(text[place]) + rng.randrange(1, 10)) % 10) + text[place + 1 :])


def change_score(rng, folder):
    def change(content):
        for epoch in list_best_epochs(content):
            score = edit_number(random.Random(seed), epoch["score"])
            epoch |= {"score": score, "selection": score}
            epoch["validation"] |= {content["config"]["task"]["primary"]: score}

    seed = rng.random()
    edit_record(choose_run(rng, folder), change)


def strip_checksum(rng, folder):
    """Call a record one of a format that had no checksums."""
    file = choose_run(rng, folder) / "result.json"
    content = json.loads(file.read_text())
    del content["checksum"]
    file.write_text(json.dumps(content | {"format": rng.choice([2, 3])}, indent=1))


def drop_predictions(rng, folder):
    (choose_run(rng, folder) / "predictions.parquet").unlink()


def change_fingerprint(rng, folder):
    part = rng.choice(["data", "encoder"])

    def change(content):
        hashes = content[part]["fingerprint"]
        name = rng.choice(sorted(hashes))
        hashes[name] = hashes[name][::-1]

    edit_record(choose_run(rng, folder), change)


def change_seeds(rng, folder):
    stream = rng.choice(["init", "order", "dropout"])
    edit_record(choose_run(rng, folder), lambda content: content["seeds"].update({stream: 7}))


def hide_scale(rng, folder):
    edit_record(choose_run(rng, folder), lambda content: content["scale"].update({"differs": []}))


def change_prediction(rng, folder, column="prediction"):
    """Change one example's prediction or label."""

    def change(rows):
        row = rng.choice(rows)
        row[column] = 1 - row[column]
        if column == "prediction":
            row["logits"] = row["logits"][::-1]

    run = choose_run(rng, folder)
    file = run / "predictions.parquet"
    edit_rows(file, change)
    edit_record(run, lambda content: content["predictions"].update({"sha256": sha256_file(file)}))


def change_label(rng, folder):
    change_prediction(rng, folder, "label")


def change_config(rng, folder):
    name = rng.choice(DECIDING)

    def change(content):
        section = content["config"]
        *path, last = name.split(".")
        for part in path:
            section = section[part]
        section[last] = section[last] * 2 + (1 if name == "seed" else 0)

    edit_record(choose_run(rng, folder), change)


def swap_files(rng, folder):
    """Exchange a file of two runs whose scores differ."""
    runs = sorted((folder / "runs").iterdir())
    scores = {run: json.loads((run / "result.json").read_text())["best"]["score"] for run in runs}
    first = rng.choice(runs)
    second = rng.choice([run for run in runs if scores[run] != scores[first]])
    name = rng.choice(["result.json", "predictions.parquet"])
    texts = [(run / name).read_bytes() for run in (second, first)]
    for run, text in zip((first, second), texts, strict=True):
        (run / name).write_bytes(text)
        if name == "predictions.parquet":
            sha256 = sha256_file(run / name)
            edit_record(run, lambda content, own=sha256: content["predictions"].update({"sha256": own}))


def change_plan(rng, folder):
    """Change a setting of a planned run; a bundle alone has a plan of its own."""
    file = folder / "plan.json"
    content = json.loads(file.read_text())
    content["settings"]["optimization"][0]["lr"] *= rng.choice([2, 3])
    write_signed_json(file, content)


def replace_by_link(rng, folder):
    file = choose_run(rng, folder) / rng.choice(["result.json", "predictions.parquet"])
    file.unlink()
    file.symlink_to("/etc/hostname")


WAYS: dict[str, Way] = {
    way.__name__: way
    for way in (
        change_score, change_fingerprint, change_seeds, hide_scale, change_prediction, change_label,
        change_config, change_plan, swap_files, replace_by_link, strip_checksum, drop_predictions,
    )
}  # fmt: skip
OF_BUNDLES = {"change_plan", "drop_predictions"}  # an output folder may lack predictions, and a sweep renews its plan
CASES = [
    *((name, "bundle") for name in WAYS if name != "replace_by_link"),
    *((name, "outputs") for name in WAYS if name not in OF_BUNDLES),
]


def tamper(name: str, seed: int, folder: Path) -> None:
    with editable(folder) as place:
        WAYS[name](random.Random(f"{name} {seed}"), place)


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
