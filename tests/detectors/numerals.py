"""Numbers in the scripts that counters of loops are written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

_ROMAN = {100: "C", 90: "XC", 50: "L", 40: "XL", 10: "X", 9: "IX", 5: "V", 4: "IV", 1: "I"}
_CHINESE = "零一二三四五六七八九"


def digits(zero: str) -> Callable[[int], str]:
    """Decimal numbers, in the digits of the script that begin with `zero`."""
    table = {ord("0") + digit: ord(zero) + digit for digit in range(10)}
    return lambda number: str(number).translate(table)


def chinese(number: int) -> str:
    """A Chinese numeral of a number up to 999."""
    hundreds, rest = divmod(number, 100)
    tens, ones = divmod(rest, 10)
    said = f"{_CHINESE[hundreds]}百{'零' if 0 < rest < 10 else ''}" if hundreds else ""
    if tens:
        said += "十" if tens == 1 and not hundreds else f"{_CHINESE[tens]}十"
    return said + (_CHINESE[ones] if ones else "")


def roman(number: int) -> str:
    """A Roman numeral."""
    said = ""
    for value, sign in _ROMAN.items():
        said += sign * (number // value)
        number %= value
    return said


def letters(number: int) -> str:
    """The letters a, b to z, aa, ab and so on."""
    said = ""
    while number:
        number, last = divmod(number - 1, 26)
        said = chr(ord("a") + last) + said
    return said


def keycaps(number: int) -> str:
    """A number as in a chat: each digit on a key."""
    return "".join(f"{digit}\ufe0f\u20e3" for digit in str(number))


NUMERALS: Mapping[str, Callable[[int], str]] = {
    "decimal": str,
    "hexadecimal": lambda number: f"{number:04x}",
    "downwards": lambda number: str(400 - number),
    "roman": roman,
    "letters": letters,
    "chinese": chinese,
    "keycaps": keycaps,
    "arabic": digits("\u0660"),
    "bengali": digits("\u09e6"),
    "devanagari": digits("\u0966"),
    "khmer": digits("\u17e0"),
    "persian": digits("\u06f0"),
    "tamil": digits("\u0be6"),
    "thai": digits("\u0e50"),
    "wide": digits("\uff10"),
}
"""Writers of numbers, by the name of the script."""
