"""Generate English captions and their German translations from a grammar and the lexicon captions.yaml.

German differs from English as in real texts: articles and adjectives agree with the noun's gender, number and case;
the verb comes before the subject if something else opens the sentence; indefinite objects follow the place; prefixes
of separable verbs go to the end; subordinate clauses end in their verb.
"""

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import yaml


@dataclass(frozen=True)
class _Noun:
    english: str
    english_plural: str
    gender: str
    german: str
    german_plural: str


@dataclass(frozen=True)
class _Verb:
    """A verb: English present participle, German third persons singular and plural, and separable prefix."""

    english: str
    german: str
    german_plural: str
    prefix: str = ""


_words: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
PEOPLE, ANIMALS, THINGS = ([_Noun(*noun) for noun in _words[name]] for name in ("people", "animals", "things"))
CLOTHES, PLACES = (  # with the English and the German preposition
    [(preposition, german, _Noun(*noun)) for preposition, german, *noun in _words[name]]
    for name in ("clothes", "places")
)
INTRANSITIVE_VERBS = [_Verb(*verb) for verb in _words["intransitive_verbs"]]
TRANSITIVE_VERBS = [_Verb(*verb) for verb in _words["transitive_verbs"]]
LIVING_ADJECTIVES, THING_ADJECTIVES = _words["living_adjectives"], _words["thing_adjectives"]
COLOUR_ADJECTIVES, TIMES, CONJUNCTIONS = _words["colour_adjectives"], _words["times"], _words["conjunctions"]
CONTRACTIONS = {"in dem": "im", "an dem": "am"}
NUMBERS = {"two": "zwei", "three": "drei", "four": "vier"}

# For masculine, feminine, neuter and plural ("a" has none): the German article, and the adjective's ending after it.
ARTICLES: dict[str, dict[str, tuple[str, ...]]] = {
    "a": {
        "nominative": ("ein", "eine", "ein"),
        "accusative": ("einen", "eine", "ein"),
        "dative": ("einem", "einer", "einem"),
    },
    "the": {
        "nominative": ("der", "die", "das", "die"),
        "accusative": ("den", "die", "das", "die"),
        "dative": ("dem", "der", "dem", "den"),
    },
}
ADJECTIVE_ENDINGS: dict[str, dict[str, tuple[str, ...]]] = {
    "a": {"nominative": ("er", "e", "es"), "accusative": ("en", "e", "es"), "dative": ("en", "en", "en")},
    "the": {
        "nominative": ("e", "e", "e", "en"),
        "accusative": ("en", "e", "e", "en"),
        "dative": ("en", "en", "en", "en"),
    },
}
PLURAL_ADJECTIVE_ENDINGS = {"nominative": "e", "accusative": "e", "dative": "en"}  # after a number or without article


@dataclass(frozen=True)
class _Clause:
    """A clause: the English one, and the pieces of the German one, for main and subordinate word order."""

    english: str
    subject: str
    middle: str
    verb: str
    prefix: str

    def format_german_main(self, opening: str = "") -> str:
        front = (opening, self.verb, self.subject) if opening else (self.subject, self.verb)
        return _join(*front, self.middle, self.prefix)

    def format_german_subordinate(self, conjunction: str) -> str:
        return _join(conjunction, self.subject, self.middle, self.prefix + self.verb)


def generate_example(rng: Random) -> tuple[str, str]:
    """Generate a caption and its translation."""
    first, second = rng.sample(PEOPLE + ANIMALS, 2)
    clause = _make_clause(rng, first, details=True)
    shape = rng.choice(("plain", "time first", "time last", "clause first", "clause last"))
    if shape == "plain":
        return _punctuate(clause.english), _punctuate(clause.format_german_main())
    if shape.startswith("time"):
        time, german_time = rng.choice(TIMES)
        english = (time, clause.english) if shape == "time first" else (clause.english, time)
        return _punctuate(_join(*english)), _punctuate(clause.format_german_main(german_time))
    conjunction, german_conjunction = rng.choice(CONJUNCTIONS)
    other = _make_clause(rng, second, details=False)
    subordinate = other.format_german_subordinate(german_conjunction)
    if shape == "clause first":
        source = f"{conjunction} {other.english}, {clause.english}"
        return _punctuate(source), _punctuate(clause.format_german_main(f"{subordinate},"))
    source = f"{clause.english} {conjunction} {other.english}"
    return _punctuate(source), _punctuate(f"{clause.format_german_main()}, {subordinate}")


def _make_noun_phrase(
    determiner: str, plural: bool, adjective: list[str] | None, noun: _Noun, case: str
) -> tuple[str, str]:
    """Build a noun phrase in English and in German.

    ``determiner``: ``a``, ``the``, a number of ``NUMBERS``, or empty. ``adjective``: in English, and in German
    without ending. ``case``: of the German phrase.
    """
    column = 3 if plural else "mfn".index(noun.gender)
    word = noun.german_plural if plural else noun.german
    if plural and case == "dative" and word[-1] not in "ns":
        word += "n"
    if determiner in ARTICLES:
        article, ending = ARTICLES[determiner][case][column], ADJECTIVE_ENDINGS[determiner][case][column]
    else:
        article, ending = NUMBERS.get(determiner, ""), PLURAL_ADJECTIVE_ENDINGS[case]
    rest = _join(adjective[0] if adjective else "", noun.english_plural if plural else noun.english)
    if determiner == "a" and rest[0] in "aeiou":
        determiner = "an"
    return _join(determiner, rest), _join(article, adjective[1] + ending if adjective else "", word)


def _make_clause(rng: Random, noun: _Noun, details: bool) -> _Clause:
    """Build a clause with ``noun`` as its subject; with ``details`` it may also have clothes and a place."""
    # What stands twice is drawn twice as often.
    determiner = rng.choice(("a", "a", "the", "the", rng.choice(tuple(NUMBERS))))
    plural = determiner in NUMBERS or (determiner == "the" and rng.random() < 0.5)
    english, subject = _make_noun_phrase(
        determiner, plural, _maybe_choose_adjective(rng, LIVING_ADJECTIVES), noun, "nominative"
    )
    if details and noun in PEOPLE and rng.random() < 0.3:
        clothes, german_clothes = _make_clothes(rng, plural)
        english, subject = _join(english, clothes), _join(subject, german_clothes)
    has_object = noun in PEOPLE and rng.random() < 0.6
    verb = rng.choice(TRANSITIVE_VERBS if has_object else INTRANSITIVE_VERBS)
    # In German a definite object stands before the place, an indefinite one after it.
    thing, before, after = _make_direct_object(rng) if has_object else ("", "", "")
    place, german_place = _make_place(rng) if details and rng.random() < 0.7 else ("", "")
    return _Clause(
        english=_join(english, "are" if plural else "is", verb.english, thing, place),
        subject=subject,
        middle=_join(before, german_place, after),
        verb=verb.german_plural if plural else verb.german,
        prefix=verb.prefix,
    )


def _make_direct_object(rng: Random) -> tuple[str, str, str]:
    """Build an object: in English, and in German as what precedes the place (definite) or follows it (indefinite)."""
    determiner = rng.choice(("a", "a", "the", rng.choice(tuple(NUMBERS))))
    adjective = _maybe_choose_adjective(rng, THING_ADJECTIVES + COLOUR_ADJECTIVES)
    noun = rng.choice(THINGS)
    english, german = _make_noun_phrase(determiner, determiner in NUMBERS, adjective, noun, "accusative")
    return (english, german, "") if determiner == "the" else (english, "", german)


def _make_place(rng: Random) -> tuple[str, str]:
    preposition, german_preposition, noun = rng.choice(PLACES)
    determiner = rng.choice(("a", "the"))
    english, german = _make_noun_phrase(
        determiner, False, _maybe_choose_adjective(rng, THING_ADJECTIVES), noun, "dative"
    )
    german = f"{german_preposition} {german}"
    for long, short in CONTRACTIONS.items():
        german = german.replace(f"{long} ", f"{short} ")
    return f"{preposition} {english}", german


def _make_clothes(rng: Random, plural: bool) -> tuple[str, str]:
    preposition, german_preposition, noun = rng.choice(CLOTHES)
    english, german = _make_noun_phrase("" if plural else "a", plural, rng.choice(COLOUR_ADJECTIVES), noun, "dative")
    return f"{preposition} {english}", f"{german_preposition} {german}"


def _maybe_choose_adjective(rng: Random, adjectives: list[list[str]]) -> list[str] | None:
    return rng.choice(adjectives) if rng.random() < 0.5 else None


def _join(*words: str) -> str:
    return " ".join(word for word in words if word)


def _punctuate(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
