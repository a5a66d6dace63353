"""Normalise Romanian diacritics, which corpora spell in two ways.

Romanian writes s and t with a comma below. Older texts have a cedilla instead, since Unicode had no such comma until
1999. A model trained on one spelling and evaluated on the other gets every word with these letters wrong.
"""

import unicodedata

DIACRITIC_CHOICES = ("keep", "comma_below", "removed")

CEDILLA_TO_COMMA = str.maketrans("\u015e\u015f\u0162\u0163", "\u0218\u0219\u021a\u021b")
LETTER_TO_PLAIN = str.maketrans("\u0102\u0103\u00c2\u00e2\u00ce\u00ee\u0218\u0219\u021a\u021b", "AaAaIiSsTt")


def normalise_diacritics(text: str, how: str) -> str:
    """Spell the Romanian diacritics of a text in one way.

    Args:
        text: any text; letters of other languages are kept.
        how: ``keep`` changes nothing. ``comma_below`` puts s and t with a comma for those with a cedilla. ``removed``
            also puts plain letters for ă, â, î, ș and ț. The last two compose decomposed letters (Unicode's NFC)
            first.

    Raises:
        ValueError: ``how`` is none of ``DIACRITIC_CHOICES``.
    """
    if how not in DIACRITIC_CHOICES:
        raise ValueError(f"how={how} is none of {', '.join(DIACRITIC_CHOICES)}")
    if how == "keep":
        return text
    commas = unicodedata.normalize("NFC", text).translate(CEDILLA_TO_COMMA)
    return commas.translate(LETTER_TO_PLAIN) if how == "removed" else commas
