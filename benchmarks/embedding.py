"""Embed the same sentences with FrozenEncoder and with sentence-transformers' encode, in turns: speed and agreement.

Orders: sentences as they are, and from the longest to the shortest.
"""

import argparse
import tempfile
from functools import partial

import common

import numpy as np
from sentence_transformers import SentenceTransformer

from isobench.data.packaged.movie_reviews import read_sentences
from isobench.data.weights import resolve_name_or_path
from isobench.frozen.encode import FrozenEncoder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoders", nargs="+", default=["minilm", "distilbert-quire"])
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sentences = read_sentences("validation")[0][: options.sentences]
    for name in options.encoders:
        cfg = common.compose_config(f"encoder={name}", "encoder.pooling=mean")
        other = SentenceTransformer(resolve_name_or_path(cfg.encoder, cfg.data.cache), device="cpu")
        for order, texts in ("as they are", sentences), ("longest first", sorted(sentences, key=len, reverse=True)):
            ours = FrozenEncoder(cfg, [None])
            with tempfile.TemporaryDirectory() as cache:
                ours.cfg.data.cache = cache
                found = ours.encode("agreement", texts[:16])[None].vectors.numpy()
            theirs = other.encode(texts[:16])
            lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(theirs, axis=1)
            calls = {
                "isobench": partial(ours._compute, "benchmark", texts, [None]),
                "sentence-transformers": partial(other.encode, texts, batch_size=64),
            }
            contestants = {name: lambda _, call=call: common.time_call(call) for name, call in calls.items()}
            times = common.time_alternately(contestants, options.rounds)
            ratio = common.median_ratio(times["sentence-transformers"], times["isobench"])
            agreement = ((found * theirs).sum(1) / lengths).min()
            print(f"{name}, {order}: {ratio:.2f} times as fast; smallest cosine of the vectors {agreement:.6f}")


if __name__ == "__main__":
    main()
