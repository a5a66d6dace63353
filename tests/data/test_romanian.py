"""Romanian diacritics, code point by code point."""

import pytest

from isobench.data.seq2seq_pairs import DIACRITIC_CHOICES, normalise_diacritics

CEDILLAS = "\u015e\u015f\u0162\u0163"
COMMAS = "\u0218\u0219\u021a\u021b"
OTHERS = "\u0102\u0103\u00c2\u00e2\u00ce\u00ee"  # a with breve, a and i with circumflex


@pytest.mark.parametrize(("cedilla", "comma"), zip(CEDILLAS, COMMAS, strict=True))
def test_a_cedilla_becomes_a_comma(cedilla, comma):
    assert normalise_diacritics(f"x{cedilla}x", "comma_below") == f"x{comma}x"
    assert normalise_diacritics(comma, "comma_below") == comma


@pytest.mark.parametrize(("letter", "comma"), zip("SsTt", COMMAS, strict=True))
def test_decomposed_letters_are_composed(letter, comma):
    assert normalise_diacritics(f"{letter}\u0327", "comma_below") == comma  # combining cedilla
    assert normalise_diacritics(f"{letter}\u0326", "comma_below") == comma  # combining comma below
    assert normalise_diacritics(f"{letter}\u0327", "removed") == letter


def test_removed_leaves_plain_letters():
    assert normalise_diacritics(OTHERS + COMMAS + CEDILLAS, "removed") == "AaAaIi" + "SsTt" * 2
    assert normalise_diacritics("a\u0306 a\u0302 i\u0302", "removed") == "a a i"


def test_other_letters_stay():
    text = "\u00e9 \u00fc \u00df \u00e7 \u0159"  # e acute, u umlaut, sharp s, c cedilla, r caron
    assert normalise_diacritics(text, "removed") == text
    assert normalise_diacritics(OTHERS, "comma_below") == OTHERS


def test_keep_keeps_every_code_point():
    text = CEDILLAS + "s\u0327"
    assert normalise_diacritics(text, "keep") == text


@pytest.mark.parametrize("how", DIACRITIC_CHOICES)
def test_twice_is_once(how):
    text = OTHERS + CEDILLAS + COMMAS + "s\u0327"
    assert normalise_diacritics(normalise_diacritics(text, how), how) == normalise_diacritics(text, how)
