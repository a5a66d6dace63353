"""Diagnose vectors: what is the matter with them, and what would change it; a screen of numbers and an HTML page.

X is a file of vectors [N, d] (.npy, .npz, .parquet, .safetensors, .pt), or of texts (.txt, one a line; .csv, .tsv,
.jsonl or .parquet with --text) that an encoder embeds. calibration=NAME adds a method to those that are tried.

Example: isobench diagnose embeddings.npy --labels labels.txt
"""

import json
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isobench.cli.command import CommandParser, run_guarded, split_files
from isobench.common.errors import refuse
from isobench.common.files import require_writable, write_text
from isobench.common.progress import track_progress
from isobench.common.terminal import format_count
from isobench.config.schema import Config

if TYPE_CHECKING:  # importing torch takes a second
    import numpy as np
    from torch import Tensor

    from isobench.frozen.diagnosis import Diagnosis
    from isobench.frozen.retrieval import Search

MOST_TOKENS = 200_000  # whose states are kept
TOKEN_KINDS = ("first", "special", "outlying")  # those of isobench.metrics.mask_tokens
TEXT_ENDINGS = (".txt", ".csv", ".tsv", ".jsonl", ".ndjson", ".json")


def main() -> None:
    parser = CommandParser("isobench diagnose", __doc__, "[X] [SETTING=VALUE ...]", page="diagnose")
    add = parser.add_argument
    add("--labels", metavar="FILE", help="classes: a .npy or .txt file, or a column of X")
    add("--pairs", metavar="FILE", type=Path, help="a table with first, second (rows or texts), score")
    add("--queries", metavar="FILE", type=Path, help="vectors, or texts, that search X")
    text = "what they should find: query-id, corpus-id, score, or TREC's"
    add("--relevant", metavar="FILE", type=Path, help=text)
    add("--against", metavar="FILE", type=Path, help="other vectors of the same texts as X's")
    add("--key", metavar="NAME", help="which array of X, or which list column of a .parquet file")
    add("--text", metavar="COLUMN", help="the column of X with texts")
    add("--vocabulary", action="store_true", help="the encoder's embedding matrix; X counts its words")
    add("--tokens", action="store_true", help="the states of all tokens in place of the texts' vectors")
    add("--without", metavar="KINDS", type=_read_kinds, help="leave out tokens: first,special,outlying")
    add("--json", action="store_true", help="print JSON, and write a page only with --to")
    add("--to", metavar="FOLDER", type=Path, help="where the page goes (outputs/diagnose)")
    options, arguments = parser.parse_sweep_arguments()
    run_guarded(lambda: _diagnose(options, arguments))


def _diagnose(options: Namespace, arguments: Sequence[str]) -> None:
    """Carry out the command: diagnose, then print, and write the page."""
    paths, settings = split_files(arguments)
    refuse(
        (len(paths) > 1, f"isobench diagnose takes one X, not {' and '.join(map(str, paths))}"),
        (options.against and (settings or options.to), "--against only prints: leave out --to and settings"),
    )
    path = paths[0] if paths else None
    is_matrix = not (options.vocabulary or path is None or options.text or path.suffix.lower() in TEXT_ENDINGS)
    _check_flags(options, path, is_matrix)
    if options.against and path:
        from isobench.frozen import compare, matrix

        (a, said), (b, more) = (matrix.read_vectors(file, options.key) for file in (path, options.against))
        compared = compare.compare_spaces(a, b)
        print(json.dumps(compared.to_json()) if options.json else "\n".join([str(compared), *said, *more]))
        return
    cfg = Config()
    methods: dict[str, dict[str, Any]] = {}
    if settings or not is_matrix:
        from isobench.sweep.planning import compose_methods  # late, so that a matrix is diagnosed at once

        cfg, methods = compose_methods(settings)
    stem = path.stem if path else options.pairs.stem if options.pairs else "vocabulary"
    name = stem if is_matrix else f"{stem}-{cfg.encoder.name}"
    page = (options.to or Path(cfg.output_dir) / "diagnose") / f"{name}.html"
    if options.json and not options.to:
        print(json.dumps(_diagnose_files(options, path, is_matrix, cfg, methods).to_json()))
        return
    with require_writable(page.parent):
        from isobench.frozen.show import print_diagnosis, render_page

        diagnosis = _diagnose_files(options, path, is_matrix, cfg, methods)
        write_text(page, render_page(diagnosis))
    if options.json:
        print(json.dumps(diagnosis.to_json()))
    else:
        print_diagnosis(diagnosis)
        print(f"Page: {page}")


def _check_flags(options: Namespace, path: Path | None, is_matrix: bool) -> None:
    """Raise UserError for flags that have no effect together."""
    takes_tokens, of_texts = options.tokens, options.labels or options.pairs
    refuse(
        (
            not (path or options.vocabulary or options.pairs),
            "name what to diagnose: isobench diagnose X (see --help)",
        ),
        (is_matrix and (takes_tokens or options.without), f"--tokens is of texts, and {path} is read as vectors"),
        (options.without and not takes_tokens, "--without leaves out tokens: add --tokens"),
        ((takes_tokens or options.vocabulary) and of_texts, "labels and pairs are of texts, not of tokens or words"),
        (takes_tokens and (options.vocabulary or not path), "--tokens needs texts, and goes without --vocabulary"),
        (options.key and not is_matrix, "--key is of a file of vectors with several arrays: leave it out"),
        (options.text and (not path or path.suffix.lower() == ".txt"), "--text is of a table with columns"),
        (options.against and not is_matrix, "--against compares two files of vectors"),
        (options.against and (of_texts or options.queries), "--against goes without labels, pairs and queries"),
        (bool(options.queries) != bool(options.relevant), "--queries and --relevant go together"),
        (options.queries and (takes_tokens or options.vocabulary or not path), "--queries searches X: name X"),
        (options.labels and not path, "--labels needs X, whose rows they are of"),
    )


def _diagnose_files(
    options: Namespace, path: Path | None, is_matrix: bool, cfg: Config, methods: dict[str, dict[str, Any]]
) -> "Diagnosis":
    """Read what the command names, or embed its texts, and diagnose it."""
    from isobench.data import own_values
    from isobench.frozen import matrix
    from isobench.frozen.diagnose import diagnose

    encoding = cfg.data.encoding
    pairs = own_values.read_pairs(options.pairs, encoding) if options.pairs else None
    places: dict[str, int] | None = None  # of texts, by which pairs may name rows
    counts = None  # of a vocabulary's words in texts
    if is_matrix and path:
        vectors, notes = matrix.read_vectors(path, options.key, [options.labels] if options.labels else [])
        source = path.name
    else:
        texts = list(dict.fromkeys(map(str, [*pairs[0], *pairs[1]]))) if pairs else []
        if path:
            texts = own_values.read_texts(path, options.text, encoding)
        places = {text: row for row, text in reversed(list(enumerate(texts)))}  # of equal texts the first
        vectors, counts, notes = _embed(options, cfg, texts)
        source = _name_source(options, path, cfg)
    classes, search = None, None
    if options.labels:
        labels = own_values.read_labels(options.labels, path, encoding)
        classes = own_values.make_classes(labels, len(vectors), f"--labels {options.labels}")
    if options.queries:
        search, said = _read_search(options, path, is_matrix, cfg, len(vectors))
        notes = [*notes, *said]
    numbered = own_values.number_pairs(pairs, len(vectors), places, str(options.pairs)) if pairs else None
    is_of_texts = not (options.tokens or options.vocabulary)
    return diagnose(
        vectors, classes, numbered, source=source, methods=methods, counts=counts, texts=is_of_texts, notes=notes,
        search=search,
    )  # fmt: skip


def _name_source(options: Namespace, path: Path | None, cfg: Config) -> str:
    """Name the vectors of texts or words: the file, the encoder, and which of its vectors."""
    what = "vocabulary" if options.vocabulary else "states of tokens" if options.tokens else cfg.encoder.pooling
    layer = "" if cfg.encoder.layer is None else f"layer {cfg.encoder.layer}"
    file = path or options.pairs
    return ", ".join(filter(None, [file.name if file else "", cfg.encoder.name, what, layer]))


def _read_search(
    options: Namespace, path: Path | None, is_matrix: bool, cfg: Config, rows: int
) -> "tuple[Search, list[str]]":
    """Read what searches the ``rows`` of X, and what it should find; return it and notes."""
    from isobench.data import own_values
    from isobench.data.relevance import read_ids, read_relevance
    from isobench.frozen import matrix
    from isobench.frozen.retrieval import make_search

    encoding = cfg.data.encoding
    if is_matrix:
        queries, notes = matrix.read_vectors(options.queries, options.key)
    else:
        queries, _, notes = _embed(options, cfg, own_values.read_texts(options.queries, options.text, encoding))
    asked, ids = read_ids(options.queries, len(queries), encoding), read_ids(path, rows, encoding)
    search, said = make_search(queries, read_relevance(options.relevant, encoding), asked, ids, str(options.relevant))
    return search, [*notes, *said]


def _embed(options: Namespace, cfg: Config, texts: list[str]) -> "tuple[Tensor, np.ndarray | None, list[str]]":
    """Return the vectors that are asked for, how often the words of a vocabulary occur in the texts, and notes."""
    from isobench.frozen.encode import FrozenEncoder

    layer = cfg.encoder.layer
    encoder = FrozenEncoder(cfg, [layer])
    if options.vocabulary:
        vectors = encoder.loaded.encoder.vocabulary().detach()
        return vectors, encoder.count_tokens(texts, len(vectors)) if texts else None, []
    if options.tokens:
        states, share = _keep_some(encoder.iterate_tokens(texts, layer, options.without))
        left_out = [f"Tokens left out: {', '.join(options.without)}."] if options.without else []
        return states, None, left_out + [f"{100 * share:.3g}% of the tokens, drawn at random."] * (share < 1)
    found = encoder.encode("texts", texts)[layer]
    cut = f"{format_count(found.cut, 'text')} as long as the encoder's longest input, or cut to it."
    return found.vectors, None, [cut] * bool(found.cut)


def _keep_some(batches: "Iterable[Tensor]") -> "tuple[Tensor, float]":
    """Keep at most ``MOST_TOKENS`` rows of batches [n, d], drawn at random; return them and the share drawn."""
    import torch

    generator, share, kept = torch.Generator().manual_seed(0), 1.0, []
    for batch in track_progress(batches, "states of tokens"):
        kept.append(batch[torch.rand(len(batch), generator=generator) < share])
        while sum(map(len, kept)) > MOST_TOKENS:
            share /= 2
            kept = [rows[torch.rand(len(rows), generator=generator) < 0.5] for rows in kept]
    return torch.cat(kept), share


def _read_kinds(text: str) -> list[str]:
    """Read the value of ``--without``."""
    kinds = [kind.strip() for kind in text.split(",")]
    if not {*kinds} <= {*TOKEN_KINDS}:
        raise ValueError(text)
    return kinds
