"""Read which documents are relevant to which query, and the ids of both."""

from pathlib import Path
from typing import Any

from isobench.common.errors import refuse
from isobench.data.tables import FORMATS, read_own_file, read_text

IDS = ("_id", "id", "docid", "doc_id", "qid", "query_id", "query-id")
# The headings of query, document and grade.
NAMES = ({"query-id", "query_id", "query", "qid"}, {"corpus-id", "corpus_id", "doc_id", "docid", "document"},
         {"score", "relevance", "rel", "label"})  # fmt: skip


def read_ids(source: Any, rows: int, encoding: str | None = None) -> list[str]:
    """Read the ids of the rows of a file or table, from its column ``_id``, ``id`` or the like; else number them."""
    if isinstance(source, Path):
        source = read_own_file(source, encoding) if source.suffix.lower() in FORMATS else None
    name = next((name for name in IDS if source is not None and name in source.column_names), None)
    if name and len(source) == rows:
        return list(map(str, source[name].to_pylist()))
    return list(map(str, range(rows)))


def read_relevance(path: Path, encoding: str | None = None) -> list[tuple[str, str, str]]:
    """Read judgements, each a query, a document and a grade as texts.

    A text file has TREC's four columns, or three as BEIR has them; tables (CSV, JSON Lines, Parquet) name theirs.
    """
    if path.suffix.lower() in FORMATS and path.suffix.lower() != ".tsv":
        table = read_own_file(path, encoding)
        names, rows = table.column_names, list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    else:
        lines = [line for line in read_text(path, encoding)[0].splitlines() if line.strip()]
        rows = [tuple(line.split("\t" if "\t" in line else None)) for line in lines]
        refuse((not rows, f"{path} is empty"))
        wrong = next((row for row in rows if len(row) not in (3, 4) or len(row) != len(rows[0])), None)
        refuse((wrong is not None, f"{path}: three or four columns are needed, not {wrong}"))
        names = ["query", "document", "score"] if len(rows[0]) == 3 else ["query", "", "document", "score"]
        if {name.strip().lower() for name in rows[0]} & NAMES[2]:  # the first line is a heading
            names = list(rows.pop(0))
    small = [name.strip().lower() for name in names]
    query, document, grade = (next((i for i, name in enumerate(small) if name in known), -1) for known in NAMES)
    refuse((min(query, document, grade) < 0, f"{path} lacks a column: query-id, corpus-id and score are needed"))
    return [(str(row[query]).strip(), str(row[document]).strip(), str(row[grade]).strip()) for row in rows]
