"""Sizes as polynomials in the symbols of a traced model, such as ``b*s*4096``: read by a grammar, never executed.

sum     = ["-"] product {("+" | "-") product}
product = factor {"*" factor} ["/" integer]
factor  = integer | symbol ["^" integer]
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import shorten

MAX_CHARACTERS = 200
MAX_POWER = 8
_MAX_DIGITS = 15
_TOKEN = re.compile(r"\s*(?:(?P<integer>[0-9]+)|(?P<symbol>[a-z][a-z0-9_]*)|(?P<sign>[-+*/^]))\s*")

Monomial = tuple[str, ...]
"""Symbols in the order of their names, one as often as its power."""


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of monomials with rational coefficients; terms in the order of their monomials, none of them 0."""

    terms: tuple[tuple[Monomial, Fraction], ...]

    @classmethod
    def of(cls, terms: Mapping[Monomial, Fraction | int]) -> "Polynomial":
        """A polynomial of coefficients by monomial."""
        found: dict[Monomial, Fraction] = {}
        for symbols, value in terms.items():
            key = tuple(sorted(symbols))
            found[key] = found.get(key, Fraction(0)) + value
        return cls(tuple(sorted((key, value) for key, value in found.items() if value)))

    @classmethod
    def constant(cls, value: int) -> "Polynomial":
        """A number."""
        return cls.of({(): value})

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that it depends on."""
        return frozenset(symbol for monomial, _ in self.terms for symbol in monomial)

    def plus(self, other: "Polynomial") -> "Polynomial":
        """The sum of two polynomials."""
        found = dict(self.terms)
        for monomial, value in other.terms:
            found[monomial] = found.get(monomial, Fraction(0)) + value
        return Polynomial.of(found)

    def times(self, other: "Polynomial") -> "Polynomial":
        """The product of two polynomials."""
        found: dict[Monomial, Fraction] = {}
        for left, first in self.terms:
            for right, second in other.terms:
                key = tuple(sorted((*left, *right)))
                found[key] = found.get(key, Fraction(0)) + first * second
        return Polynomial.of(found)

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The size at given values of the symbols.

        Raises:
            InputError: it is not whole or negative there.
        """
        total = Fraction(0)
        for monomial, coefficient in self.terms:
            product = coefficient
            for symbol in monomial:
                product *= values[symbol]
            total += product
        if total.denominator != 1 or total < 0:
            given = ", ".join(f"{name} = {values[name]}" for name in sorted(self.symbols))
            message = f"size {self} is {float(total):g} at {given}; give values at which it is a whole number"
            raise InputError(message)
        return int(total)

    def __str__(self) -> str:
        """As `parse_polynomial` reads it."""
        text = "".join(_term_text(monomial, value) for monomial, value in reversed(self.terms))
        return text.removeprefix("+") or "0"


def _term_text(monomial: Monomial, value: Fraction) -> str:
    """One term with its sign."""
    powers = [name if (n := monomial.count(name)) == 1 else f"{name}^{n}" for name in dict.fromkeys(monomial)]
    number = abs(value.numerator)
    factors = "*".join([*powers, *([str(number)] if number != 1 or not powers else [])])
    divisor = "" if value.denominator == 1 else f"/{value.denominator}"
    return f"{'-' if value < 0 else '+'}{factors}{divisor}"


def parse_polynomial(text: str) -> Polynomial:
    """Read a size.

    Raises:
        InputError: it is longer than a size is, or not of the grammar.
    """
    if len(text) > MAX_CHARACTERS:
        message = f"size {shorten(text)} has more than {MAX_CHARACTERS} characters"
        raise InputError(message)
    tokens = list(_tokens(text))
    position, terms = 0, dict[Monomial, Fraction]()
    while position < len(tokens) or not terms:
        sign, position = _sign(tokens, position, text=text)
        monomial, value, position = _product(tokens, position, text=text)
        terms[monomial] = terms.get(monomial, Fraction(0)) + sign * value
    return Polynomial.of(terms)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Kinds and texts of the parts."""
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None or len(found.group("integer") or "") > _MAX_DIGITS:
            raise _fault(text)
        yield str(found.lastgroup), found.group().strip()
        position = found.end()


def _sign(tokens: list[tuple[str, str]], position: int, *, text: str) -> tuple[int, int]:
    """The sign before a product; the first product needs none."""
    if position < len(tokens) and tokens[position][1] in ("+", "-") and (position or tokens[0][1] == "-"):
        return (-1 if tokens[position][1] == "-" else 1), position + 1
    if position:
        raise _fault(text)
    return 1, position


def _product(tokens: list[tuple[str, str]], position: int, *, text: str) -> tuple[Monomial, Fraction, int]:
    """Monomial and coefficient of one product, and where it ends."""
    symbols: list[str] = []
    value = Fraction(1)
    while True:
        kind, token = tokens[position] if position < len(tokens) else ("end", "")
        position += 1
        if kind == "integer":
            value *= int(token)
        elif kind == "symbol":
            power, position = _after(tokens, position, "^", text=text)
            if power > MAX_POWER or len(symbols) + power > MAX_POWER:
                raise _fault(text)
            symbols += [token] * power
        else:
            raise _fault(text)
        if position < len(tokens) and tokens[position][1] == "*":
            position += 1
            continue
        divisor, position = _after(tokens, position, "/", text=text)
        if divisor == 0:
            raise _fault(text)
        return tuple(sorted(symbols)), value / divisor, position


def _after(tokens: list[tuple[str, str]], position: int, sign: str, *, text: str) -> tuple[int, int]:
    """The integer behind a sign, 1 if the sign is not there."""
    if position >= len(tokens) or tokens[position][1] != sign:
        return 1, position
    kind, token = tokens[position + 1] if position + 1 < len(tokens) else ("end", "")
    if kind != "integer":
        raise _fault(text)
    return int(token), position + 2


def _fault(text: str) -> InputError:
    message = f"size {shorten(text)} is no polynomial; give integers, or sums and products such as 'b*s*4096'"
    return InputError(message)
