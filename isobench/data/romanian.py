"""Romanian diacritics, which corpora spell in two ways.

S and t with a comma below are Romanian's letters; older texts have the cedilla instead (Unicode had no comma until
1999). A model that learned one spelling and is evaluated on the other loses every word that has one.
"""

import unicodedata

DIACRITIC_CHOICES = ("keep", "comma_below", "removed")

CEDILLA_TO_COMMA = str.maketrans("\u015e\u015f\u0162\u0163", "\u0218\u0219\u021a\u021b")
LETTER_TO_PLAIN = str.maketrans("\u0102\u0103\u00c2\u00e2\u00ce\u00ee\u0218\u0219\u021a\u021b", "AaAaIiSsTt")


def normalise_diacritics(text: str, how: str) -> str:
    """A text with its diacritics spelled in one way.

    Args:
        text: any text; letters of other languages stay.
        how: ``keep`` (as it is), ``comma_below`` (s and t with a cedilla get a comma) or ``removed`` (also plain
            letters for ă, â, î, ș and ț). Both compose decomposed letters (Unicode's NFC) first.

    Raises:
        ValueError: another ``how``.
    """
    if how not in DIACRITIC_CHOICES:
        raise ValueError(f"how={how} is none of {', '.join(DIACRITIC_CHOICES)}")
    if how == "keep":
        return text
    commas = unicodedata.normalize("NFC", text).translate(CEDILLA_TO_COMMA)
    return commas.translate(LETTER_TO_PLAIN) if how == "removed" else commas
