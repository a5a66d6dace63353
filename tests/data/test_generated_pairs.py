"""Generated texts: the same everywhere, splits apart, German that agrees, summaries by their rule."""

import hashlib
import re
import subprocess
import sys

import pytest

from isobench.common.errors import UserError
from isobench.data.packaged import captions, generated_pairs
from isobench.metrics.generated_text import evaluate_texts

SHA256 = {
    ("captions", "train"): "c37921cd24c5f4f0c365ca0e9e73341f76cb2b2226f8006610a66514fdaeffa1",
    ("captions", "validation"): "47a1fc685ab3515697ce1c83d1a42f3d042f24207a675a623a64e214ec6b62d4",
    ("captions", "test"): "7705a8b6e2dd4c83243e35051006cfe6e8bdcc57ed4fec69cc757273ebdf9b55",
    ("bulletins", "train"): "877e5844ee15ba1f94dc40d3a8cf8061e03f3ab6f9e208c2372af972a7d79f38",
    ("bulletins", "validation"): "9a97171d70edbbc46fe2072cff625d5db5908cd11d7d430523f8daec2b7d24ed",
    ("bulletins", "test"): "705ed95e3a561dc20277fda84af090455015a8caacb0c463d25add0c1a2bd2c3",
}


@pytest.fixture(scope="module")
def texts():
    return {(grammar, split): generated_pairs.generate_pairs(grammar, split) for grammar, split in SHA256}


@pytest.mark.parametrize("key", SHA256)
def test_the_examples_are_these(texts, key):
    sources, targets = texts[key]
    lines = "".join(f"{source}\t{target}\n" for source, target in zip(sources, targets, strict=True))
    assert (
        hashlib.sha256(lines.encode()).hexdigest() == SHA256[key]
    )  # if they change, so must generated_pairs.VERSION
    assert len(sources) == generated_pairs.SPLIT_SIZES[key[1]]


@pytest.mark.parametrize("grammar", generated_pairs.GRAMMARS)
def test_no_source_is_in_two_splits_or_twice(texts, grammar):
    sources = [source for split in generated_pairs.SPLIT_SIZES for source in texts[grammar, split][0]]
    assert len(set(sources)) == len(sources) == 4600


def test_what_is_not_here_is_one_line():
    with pytest.raises(UserError, match="grammar=caption is not known: did you mean captions"):
        generated_pairs.generate_pairs("caption", "train")
    with pytest.raises(UserError, match="has no split dev: choose one of: test, train, validation"):
        generated_pairs.generate_pairs("captions", "dev")


def test_nothing_heavy_is_imported():
    code = (
        "import sys, isobench.data.packaged.generated_pairs\n"
        "print(*sorted({'torch', 'numpy', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


DECLENSION = {  # from a grammar book: new ball, new bag, new picture, new pictures
    "nominative": "ein neuer Ball, eine neue Tasche, ein neues Bild, zwei neue Bilder, neue Bilder; "
    "der neue Ball, die neue Tasche, das neue Bild, die neuen Bilder",
    "accusative": "einen neuen Ball, eine neue Tasche, ein neues Bild, zwei neue Bilder, neue Bilder; "
    "den neuen Ball, die neue Tasche, das neue Bild, die neuen Bilder",
    "dative": "einem neuen Ball, einer neuen Tasche, einem neuen Bild, zwei neuen Bildern, neuen Bildern; "
    "dem neuen Ball, der neuen Tasche, dem neuen Bild, den neuen Bildern",
}


@pytest.mark.parametrize("case", DECLENSION)
def test_noun_phrases_are_declined(case):
    nouns = {noun.english: noun for noun in captions.THINGS}
    ball, bag, picture = (nouns[word] for word in ("ball", "bag", "picture"))
    phrases = [("a", False, ball), ("a", False, bag), ("a", False, picture), ("two", True, picture)]
    phrases += [("", True, picture), ("the", False, ball), ("the", False, bag)]
    phrases += [("the", False, picture), ("the", True, picture)]
    declined = [captions.make_noun_phrase(word, plural, ("new", "neu"), noun, case) for word, plural, noun in phrases]
    assert [german for _, german in declined] == re.split("[,;] ", DECLENSION[case])
    assert declined[0][0] == "a new ball"


def test_an_comes_before_vowels():
    umbrella = next(noun for noun in captions.THINGS if noun.english == "umbrella")
    assert captions.make_noun_phrase("a", False, None, umbrella, "accusative") == (
        "an umbrella",
        "einen Regenschirm",
    )
    assert captions.make_noun_phrase("a", False, ("old", "alt"), umbrella, "dative")[0] == "an old umbrella"
    assert captions.make_noun_phrase("a", False, ("red", "rot"), umbrella, "dative")[0] == "a red umbrella"


# Whose genders an article can stand before (p: plural), and the endings of an adjective between them.
ALLOWED = {
    "ein": {"m": {"er"}, "n": {"es"}},
    "eine": {"f": {"e"}},
    "einen": {"m": {"en"}},
    "einem": {"m": {"en"}, "n": {"en"}},
    "einer": {"f": {"en"}},
    "der": {"m": {"e"}, "f": {"en"}},
    "die": {"f": {"e"}, "p": {"en"}},
    "das": {"n": {"e"}},
    "den": {"m": {"en"}},
    "dem": {"m": {"en"}, "n": {"en"}},
    "im": {"m": {"en"}, "n": {"en"}},
    "am": {"m": {"en"}, "n": {"en"}},
    **{number: {"p": {"e"}} for number in ("zwei", "drei", "vier")},
}


def test_articles_and_adjectives_agree_with_their_nouns(texts):
    worn = [noun for _, _, noun in captions.CLOTHES + captions.PLACES]
    genders: dict[str, set[str]] = {"Mittag": {"m"}}
    for noun in [*captions.PEOPLE, *captions.ANIMALS, *captions.THINGS, *worn]:
        genders.setdefault(noun.german, set()).add(noun.gender)
        genders.setdefault(noun.german_plural, set()).add("p")
    phrase = re.compile(rf"\b((?i:{'|'.join(ALLOWED)})) (?:([a-zäöüß]+) )?([A-ZÄÖÜ]\w+)")
    checked = 0
    for target in texts["captions", "validation"][1] + texts["captions", "test"][1]:
        for article, adjective, noun in phrase.findall(target):
            fitting = ALLOWED[article.lower()].keys() & genders[noun]
            assert fitting, target
            if adjective:
                endings = {ending for gender in fitting for ending in ALLOWED[article.lower()][gender]}
                assert any(adjective.endswith(ending) for ending in endings), target
            checked += 1
    assert checked > 1000


FORMS = {
    verb.prefix + form
    for verb in captions.INTRANSITIVE_VERBS + captions.TRANSITIVE_VERBS
    for form in (verb.german, verb.german_plural)
}


def test_german_verbs_are_second_or_last_and_agree(texts):
    verbs = captions.INTRANSITIVE_VERBS + captions.TRANSITIVE_VERBS
    plural = {verb.german_plural for verb in verbs}
    finite = {verb.german for verb in verbs} | plural
    openings = ("Heute Morgen ", "Heute ", "Jetzt ", "Am Mittag ")
    for source, target in zip(*texts["captions", "validation"], strict=True):
        parts = target.rstrip(".").split(", ")
        subordinate = [part.split() for part in parts if part.lower().startswith(("während ", "weil "))]
        (main,) = (part.split() for part in parts if part.split() not in subordinate)
        assert sum(word in finite for word in main) == 1, target
        for words in subordinate:
            assert words[-1] in FORMS, target
            assert not finite & set(words[:-1]), target
        if subordinate and parts[0].split() in subordinate:
            assert main[0] in finite, target
        for opening in openings:
            if target.startswith(opening):
                assert target.removeprefix(opening).split(maxsplit=1)[0] in finite, target
                break
        if not subordinate:
            assert bool(set(main) & plural) == (" are " in source), source


# Of every shape.
WORD_BY_WORD = {
    "A young man is picking up the picture next to a small wall while the boy is carrying a bicycle.": (
        "Ein junger Mann hebt das Bild neben einer kleinen Mauer auf, während der Junge ein Fahrrad trägt."
    ),
    "Because a cow is sitting, the tired girl with a blue hat is standing.": (
        "Weil eine Kuh sitzt, steht das müde Mädchen mit einem blauen Hut."
    ),
    "Now the nurses with white hats are looking for three balls on the new bridge.": (
        "Jetzt suchen die Krankenschwestern mit weißen Hüten auf der neuen Brücke drei Bälle."
    ),
    "The happy teacher in a black coat is painting a new bag on the small street today.": (
        "Heute malt der fröhliche Lehrer in einem schwarzen Mantel auf der kleinen Straße eine neue Tasche."
    ),
}


@pytest.mark.parametrize("source", WORD_BY_WORD)
def test_some_captions_word_by_word(texts, source):
    pairs = dict(zip(*texts["captions", "test"], strict=True))
    assert pairs[source] == WORD_BY_WORD[source]


def test_copying_is_no_translation(texts):
    sources, targets = texts["captions", "validation"]
    assert evaluate_texts(["bleu"], targets, sources)["bleu"] < 0.05


WHO = {"Anna": "She", "Clara": "She", "Maria": "She", "David": "He", "Peter": "He", "Simon": "He"}


def summary(source: str) -> str:
    """The rule, from the report alone."""
    deed = r"(?:(\w+) )?([A-Z]\w+) ((?:\w+ed|bought|sold) the \w+ \w+)"
    sentences = [match.groups() for match in map(re.compile(deed).search, source.split(". ")) if match]
    first, last, _ = sentences[0]
    deeds = [what for _, who, what in sentences if who == last]
    return f"{first} {last} {deeds[0]}. {WHO[first]} also {' and '.join(deeds[1:])}."


@pytest.mark.parametrize("split", generated_pairs.SPLIT_SIZES)
def test_summaries_follow_their_rule(texts, split):
    for source, target in zip(*texts["bulletins", split], strict=True):
        assert 4 <= source.count(".") <= 7
        assert target == summary(source)


@pytest.mark.slow
def test_the_lead_is_no_summary(texts):
    sources, targets = texts["bulletins", "validation"]
    for count in (1, 2, 3):
        lead = [" ".join(re.findall(r"[^.]+\.", source)[:count]) for source in sources]
        assert evaluate_texts(["rouge1"], targets, lead)["rouge1"] < 0.6
