"""What "Too Much in Common" claims: each check on made-up rows either way."""

from isobench.report.claims import FAILS, HOLDS
from isobench_papers.too_much_in_common.claims import (
    centring_restores_isotropy,
    rare_tokens_are_nearer,
    word_similarity_improves,
)


def test_centring_makes_embeddings_nearly_isotropic():
    row = {"encoder": "e", "i1_raw": 0.4, "i1_centred": 0.96, "i1_removed": 0.99}
    assert centring_restores_isotropy([row]).word == HOLDS
    assert centring_restores_isotropy([row | {"i1_centred": 0.6}]).word == FAILS


def test_words_and_rare_tokens():
    words = [{"encoder": "e", "similarity": "cosine", "method": m, "pearson": p} for m, p in (("raw", 50), ("x", 60))]
    assert word_similarity_improves("x")(words).word == HOLDS
    assert word_similarity_improves("x")([*words[:1], {**words[1], "pearson": 40}]).word == FAILS
    near = [{"encoder": "e", "vectors": "raw", "cosine": value} for value in (0.2, 0.7)]
    assert rare_tokens_are_nearer(near).word == HOLDS
    assert rare_tokens_are_nearer(near[::-1]).word == FAILS
