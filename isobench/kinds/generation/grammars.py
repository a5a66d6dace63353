"""Generate sources and targets for translation and summarisation, because no such corpus is on the package index.

They show that translation and summarisation work and how a method acts on a small scale, no more. The examples depend
on the grammar and its version only. The sha256 of a source decides its split, as in movie_reviews.py, so no source is
in two splits. This module imports nothing heavy, because runs are keyed before torch is imported.
"""

from collections.abc import Callable
from random import Random

from isobench.data.packaged.movie_reviews import SPLIT_BOUNDS, hash_to_fraction

VERSION = 1  # raise it when any example changes
SPLIT_SIZES = {"train": 4000, "validation": 300, "test": 300}

FIRST_NAMES = (("Anna", "She"), ("Clara", "She"), ("Maria", "She"), ("David", "He"), ("Peter", "He"), ("Simon", "He"))
LAST_NAMES = ("Abel", "Berg", "Carter", "Dunn", "Ellis", "Fischer", "Grant", "Hill", "Jonas", "Keller")
VERBS = ("opened", "closed", "visited", "bought", "sold", "painted", "repaired", "inspected", "praised", "described")
ADJECTIVES = ("old", "new", "small", "famous", "empty", "white")
OBJECTS = ("library", "museum", "bridge", "theatre", "school", "market", "tower", "garden", "station", "bakery")
TIMES = ("on Monday", "on Friday", "last week", "in the morning", "after lunch", "before sunset")
PLACES = ("in Riverton", "in Oakfield", "near the harbour", "by the lake", "outside the town", "in the north")
IMPERSONAL_CLAUSES = ("The weather was mild", "The shops were closed", "The streets were full", "It rained a little")


def generate_pairs(grammar: str, split: str) -> tuple[list[str], list[str]]:
    """Generate the sources and targets of one split, no source twice, the same on every machine."""
    low, high = SPLIT_BOUNDS[split]
    rng = Random(f"{grammar} {VERSION}")  # Random hashes a text by sha512, alike in every process
    pairs: dict[str, str] = {}
    while len(pairs) < SPLIT_SIZES[split]:
        source, target = EXAMPLE_GENERATORS[grammar](rng)
        if low <= hash_to_fraction(source) < high:
            pairs[source] = target
    return list(pairs), list(pairs.values())


def _generate_bulletin(rng: Random) -> tuple[str, str]:
    """Generate a short report and its summary.

    A report has four to seven sentences, in mixed order, that say what two or three people did, when and where; one
    sentence may be about nobody. The first mention of a person has the full name, later ones the last name only. The
    summary says what the person mentioned first did, in order, without time and place: the first deed after the full
    name, the others in a second sentence after *She* or *He*.
    """
    people = list(zip(rng.sample(FIRST_NAMES, 3), rng.sample(LAST_NAMES, 3), strict=True))
    (first_name, pronoun), last_name = hero = people[0]
    others = rng.choices(people[1:], k=rng.randint(2, 3))
    later = [hero] * rng.randint(1, 2) + others
    rng.shuffle(later)
    sentences: list[str] = []
    deeds: list[str] = []
    mentioned: set[str] = set()
    for (first, _), last in [hero, *later]:
        deed = f"{rng.choice(VERBS)} the {rng.choice(ADJECTIVES)} {rng.choice(OBJECTS)}"
        sentences.append(_make_sentence(rng, last if last in mentioned else f"{first} {last}", deed))
        mentioned.add(last)
        if last == last_name:
            deeds.append(deed)
    if rng.random() < 0.5:
        sentences.insert(rng.randint(0, len(sentences)), f"{rng.choice(IMPERSONAL_CLAUSES)} {rng.choice(PLACES)}.")
    return " ".join(sentences), f"{first_name} {last_name} {deeds[0]}. {pronoun} also {' and '.join(deeds[1:])}."


def _make_sentence(rng: Random, name: str, deed: str) -> str:
    time, place = rng.choice(TIMES), rng.choice(PLACES)
    if rng.random() < 0.5:
        return f"{time[0].upper()}{time[1:]}, {name} {deed} {place}."
    return f"{name} {deed} {place} {time}."


def _generate_caption(rng: Random) -> tuple[str, str]:
    from isobench.kinds.generation import captions  # reads its lexicon

    return captions.generate_example(rng)


EXAMPLE_GENERATORS: dict[str, Callable[[Random], tuple[str, str]]] = {
    "captions": _generate_caption,
    "bulletins": _generate_bulletin,
}
