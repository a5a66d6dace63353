"""Compute isobench/frozen/normal.json: what a diagnosis finds for well-known encoders, on sentences of a package.

python benchmarks/normal_ranges.py          # writes the file anew; a minute, with the packages of isobench[embedded]
"""

import json

from isobench.data.packaged.movie_reviews import SPLIT_BOUNDS, read_sentences
from isobench.frozen.diagnose import NORMAL, Diagnosis, diagnose
from isobench.frozen.encode import FrozenEncoder
from isobench.sweep.planning import compose_methods

ENCODERS = (("minilm", "mean"), ("distilbert-quire", "mean"), ("distilbert-quire", "cls"))
MEASURES = (
    "EV1", "EV3", "IsoScore", "I1", "I2", "average cosine", "mean ratio", "effective rank", "RankMe", "alpha-ReQ",
    "spread of norms", "uniformity",
)  # fmt: skip
SHARES_OF_DIM = ("effective rank", "RankMe")  # these count directions
ABOUT = (
    "Lowest and highest value of packaged encoders, at their output: all-MiniLM-L6-v2 (mean pooling) and "
    "DistilBERT-base-cased tuned for grammar correction (mean pooling, and [CLS]), on the 8,530 sentences of Rotten "
    "Tomatoes' training split. Made by benchmarks/normal_ranges.py."
)


def measure(encoder: str, pooling: str, sentences: list[str]) -> Diagnosis:
    cfg, _ = compose_methods([f"encoder={encoder}", f"encoder.pooling={pooling}"])
    return diagnose(FrozenEncoder(cfg, [None]).encode("normal", sentences)[None].vectors, texts=False)


def main() -> None:
    sentences = [sentence for split in SPLIT_BOUNDS for sentence in read_sentences(split)[0]]
    values: dict[str, list[float]] = {name: [] for name in MEASURES}
    for encoder, pooling in ENCODERS:
        found = measure(encoder, pooling, sentences)
        for finding in found.findings:
            if finding.measure in MEASURES:
                scale = found.dim if finding.measure in SHARES_OF_DIM else 1
                values[finding.measure].append(finding.value / scale)
        print(encoder, pooling, found.notes, {name: f"{own[-1]:.4g}" for name, own in values.items()})
    ranges = {name: [float(f"{end(own):.4g}") for end in (min, max)] for name, own in values.items()}
    rows = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(ends)}" for name, ends in ranges.items())
    head = f'{{\n "about": {json.dumps(ABOUT)},\n "shares_of_dim": {json.dumps(SHARES_OF_DIM)},'
    NORMAL.write_text(f'{head}\n "ranges": {{\n  {rows}\n }}\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
