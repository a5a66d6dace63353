"""An output folder of runs that were never trained, but agree with themselves in everything that verify checks."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
from helpers import make_config, record_content, review_columns, write_parquet

from isobench.bundles.export import name_fingerprint
from isobench.bundles.manifest import BundledFile, BundledRun, Manifest, format_manifest
from isobench.common.files import sha256_file
from isobench.common.provenance import read_git_state, read_package_version
from isobench.config.schema import config_from_plain
from isobench.data.scale import find_scale_differences
from isobench.metrics.task import evaluate_predictions, is_constant
from isobench.report.files import write_report
from isobench.runs.folder import RunFolder, mark_output_folder
from isobench.runs.grouping import read_run_names
from isobench.runs.identity import identify
from isobench.runs.record import RunRecord
from isobench.runs.seeding import resolve_seeds
from isobench.training.predictions import write_predictions
from isobench.verification.run_check import CheckedRun
from isobench.verification.tables import make_row
from isobench.verification.verify import VerifiedFolder

EXAMPLES = 60


def write_data_and_encoder(root: Path) -> tuple[Path, Path]:
    """A data.root with a small sst2, and a folder that is fingerprinted as an encoder's; nothing loads it."""
    for seed, (split, n) in enumerate({"train": 160, "validation": EXAMPLES}.items()):
        write_parquet(root / "data" / "glue" / "sst2" / f"{split}.parquet", review_columns(n, seed))
    encoder = root / "encoder"
    encoder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (encoder / name).write_bytes(f"{{{name!r}: 1}}".encode())
    return root / "data", encoder


def write_runs(root: Path, outputs: Path, methods=("none", "isobn_paper"), seeds=(1, 2)) -> None:
    """Runs of sst2 in an output folder, with the report of them all."""
    data, encoder = write_data_and_encoder(root)
    overrides = [
        "task=sst2",
        f"data.root={data}",
        "encoder=local",
        f"encoder.path={encoder}",
        f"output_dir={outputs}",
    ]
    runs = []
    for method in methods:
        base = make_config(*overrides, "optimization.epochs=2", "optimization.patience=null", f"calibration={method}")
        runs += [write_run(replace(base, seed=seed)) for seed in seeds]
    mark_output_folder(outputs)
    folder = VerifiedFolder(outputs)
    write_report(base.experiment, [make_row(folder, run, "finished", base.experiment) for run in runs])


def write_run(cfg) -> CheckedRun:
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
        isotropy = {
            "embedding/ev1": float(random_numbers.random()),
            "embedding/isoscore": float(random_numbers.random()),
        }
        scores = {"validation": {**metrics, "constant_predictor": is_constant(predictions)}}
        epochs.append(
            {**scores, "isotropy": isotropy, "epoch": number, "step": 10 * number, "score": score, "selection": score}
        )
        outputs.append({"validation": {"logits": logits, "predictions": predictions, "labels": labels}})
    best = max((0, 1), key=lambda place: epochs[place]["selection"])
    folder.path.mkdir(parents=True)
    folder.write_config(record_content(cfg)["config"])
    made_with = record_content(cfg)["provenance"] | {
        "git": read_git_state(), "versions": {"isobench": read_package_version("isobench")},
    }  # fmt: skip
    content = record_content(
        cfg, key=identity.key, seeds=resolve_seeds(cfg), best=epochs[best], history=epochs, provenance=made_with,
        scale={"name": cfg.scale, "differs": find_scale_differences(cfg)},
        data={"fingerprint": identity.data, "examples": {"train": 160, "validation": EXAMPLES}},
        encoder={"fingerprint": identity.encoder},
        predictions=write_predictions(folder.path / "predictions.parquet", outputs[best]).model_dump(),
    )  # fmt: skip
    record = RunRecord.model_validate(content)
    folder.write_record(record)
    return CheckedRun(folder.path.name, folder.read_record(), cfg)


def make_bundle(outputs: Path, bundle: Path, report: str = "runs") -> Path:
    """Copy an output folder's runs and one report into a bundle with a manifest."""
    for folder in sorted((outputs / "runs").iterdir()):
        (bundle / "runs" / folder.name).mkdir(parents=True)
        for name in ("result.json", "config.yaml", "predictions.parquet"):
            if (folder / name).exists():
                shutil.copyfile(folder / name, bundle / "runs" / folder.name / name)
    shutil.copytree(outputs / "reports" / report, bundle / "report")
    write_manifest(bundle)
    return bundle


def write_manifest(bundle: Path) -> None:
    """Write the manifest of the files and runs that a bundle has now, as somebody does who changed them."""
    files = {}
    for file in sorted(bundle.rglob("*")):
        if file.is_file() and file.name != "manifest.json":
            about = BundledFile(sha256=sha256_file(file), bytes=file.stat().st_size)
            files[file.relative_to(bundle).as_posix()] = about
    runs, data, weights = {}, {}, {}
    for folder in sorted((bundle / "runs").iterdir()):
        record = RunRecord.model_validate_json((folder / "result.json").read_text())
        task, encoder, method = read_run_names(config_from_plain(record.config))
        own = [name_fingerprint(part.fingerprint) for part in (record.data, record.encoder)]
        data[own[0]], weights[own[1]] = record.data.fingerprint, record.encoder.fingerprint
        runs[record.key] = BundledRun(
            folder=f"runs/{folder.name}", status=record.status, seed=record.config["seed"], task=task,
            encoder=encoder, method=method, score=record.best.score, ended=0.0, data=own[0], weights=own[1],
            predictions="kept" if (folder / "predictions.parquet").exists() else "removed",
        )  # fmt: skip
    manifest = Manifest(
        format=1, isobench="0.1.0", experiment=None, commands=[], created="1970-01-01T00:00:00+00:00",
        planned=len(runs), anonymous=False, license="CC-BY-4.0", runs=runs, data=data, weights=weights, analysis=[],
        files=files,
    )  # fmt: skip
    (bundle / "manifest.json").write_bytes(format_manifest(manifest))
