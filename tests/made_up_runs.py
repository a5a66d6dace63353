"""An output folder of runs that were never trained, but agree with themselves in everything that verify checks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from helpers import make_config, record_content, review_columns, write_parquet

from isobench.bundles.transfer import export_bundle
from isobench.common.environment import read_git_state, read_package_version
from isobench.data.scale import find_scale_differences
from isobench.metrics.task import evaluate_predictions, is_constant
from isobench.runs.folder import RunFolder, mark_output_folder, write_predictions
from isobench.runs.identity import identify, resolve_seeds
from isobench.runs.plan import Plan, read_runs
from isobench.runs.record import RunRecord

TRAINED, EXAMPLES = 160, 60


def write_runs(root: Path, outputs: Path, methods=("none", "isobn_paper"), seeds=(1, 2)) -> None:
    """Runs of sst2 in an output folder, with its data, and files that are fingerprinted as an encoder's."""
    data, encoder = root / "data", root / "encoder"
    for number, (split, n) in enumerate({"train": TRAINED, "validation": EXAMPLES}.items()):
        write_parquet(data / "glue" / "sst2" / f"{split}.parquet", review_columns(n, number))
    encoder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (encoder / name).write_bytes(f"{{{name!r}: 1}}".encode())
    overrides = [
        "task=sst2", f"task.train_samples={TRAINED}", f"data.root={data}", "encoder=local",
        f"encoder.path={encoder}", f"output_dir={outputs}",
    ]  # fmt: skip
    for method in methods:
        base = make_config(*overrides, "optimization.epochs=2", "optimization.patience=null", f"calibration={method}")
        for seed in seeds:
            write_run(replace(base, seed=seed))
    mark_output_folder(outputs)


def write_run(cfg) -> None:
    """One run: two epochs with predictions of their own, of which the better one is reported."""
    identity = identify(cfg)
    folder = RunFolder(cfg.output_dir, identity.key)
    labels = np.array(review_columns(EXAMPLES, 1)["label"])
    random_numbers = np.random.default_rng(int(identity.key[:8], 16))
    epochs, outputs = [], []
    for number in (1, 2):
        logits = random_numbers.normal(size=(EXAMPLES, 2)).astype(np.float32)
        logits[: 10 * cfg.seed + number, :] += 3 * np.eye(2, dtype=np.float32)[labels[: 10 * cfg.seed + number]]
        predictions = logits.argmax(1)
        metrics = evaluate_predictions(list(cfg.task.metrics), labels, predictions)
        score = metrics[cfg.task.primary]
        share, isoscore = map(float, random_numbers.random(2))
        isotropy = {"embedding/ev1": share, "embedding/isoscore": isoscore}
        scores = {"validation": {**metrics, "constant_predictor": is_constant(predictions)}}
        measures = {"isotropy": isotropy, "explained_variance": {"embedding": [share, min(1.0, 2 * share)]}}
        steps = TRAINED // cfg.optimization.batch_size * number
        epochs.append({**scores, **measures, "epoch": number, "step": steps, "score": score, "selection": score})
        outputs.append({"validation": {"label": labels, "prediction": predictions, "logits": logits}})
    best = max((0, 1), key=lambda place: epochs[place]["selection"])
    folder.path.mkdir(parents=True)
    made_with = record_content(cfg)["provenance"] | {
        "git": read_git_state(), "versions": {"isobench": read_package_version("isobench")},
    }  # fmt: skip
    content = record_content(
        cfg, key=identity.key, seeds=resolve_seeds(cfg), best=epochs[best], history=epochs, provenance=made_with,
        scale={"name": cfg.scale, "differs": find_scale_differences(cfg)},
        data={"fingerprint": identity.data, "examples": {"train": TRAINED, "validation": EXAMPLES}},
        cost={"examples": 2 * TRAINED},
        encoder={"fingerprint": identity.encoder},
        predictions=write_predictions(folder.path / "predictions.parquet", outputs[best]).model_dump(),
    )  # fmt: skip
    folder.write_record(RunRecord.model_validate(content))


def make_bundle(outputs: Path, bundle: Path) -> Path:
    """Export the runs of an output folder as a bundle."""
    rows = read_runs(str(outputs))
    runs = [(row.cfg, row.identity) for row in rows]
    export_bundle(bundle, Plan(rows[0].cfg.experiment.name, [], runs), rows, licence="CC-BY-4.0")
    return bundle
