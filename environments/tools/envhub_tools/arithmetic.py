"""Exact arithmetic on what a policy writes: integers and fractions, no names, no calls, and no number over a size."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

from envhub.envs.tools import ToolError

LONGEST = 400
MOST_BITS = 4096
PLACES = 10
_KNOWN = re.compile(r"[0-9.+\-*/%()\s]*")
_DECIMAL = re.compile(r"([0-9]*)\.([0-9]*)")
_SIGNS = str.maketrans({"\u00d7": "*", "\u00f7": "/", "\u2212": "-"})  # the signs that mathematicians write
_WORDS = "write numbers with + - * / // % ** and parentheses"


def evaluate(expression: str) -> Fraction:
    """The exact value of an expression.

    Raises:
        ToolError: it is no expression, divides by zero, or grows too big.
    """
    if len(expression) > LONGEST:
        raise ToolError(f"the expression has over {LONGEST} characters")
    text = expression.translate(_SIGNS).replace("^", "**").strip()
    if not text or not _KNOWN.fullmatch(text):
        raise ToolError(_WORDS)
    try:
        return _value(ast.parse(_DECIMAL.sub(_as_fraction, text), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:  # how Python's parser refuses deep nesting differs by version
        raise ToolError(f"this is no expression; {_WORDS}") from error
    except ZeroDivisionError as error:
        raise ToolError("division by zero") from error


def show(value: Fraction) -> str:
    """A value in words: exact, with a decimal where it is no integer."""
    if value.denominator == 1:
        return str(value.numerator)
    rounded = round(value, PLACES)
    whole, part = divmod(abs(rounded.numerator) * 10**PLACES // rounded.denominator, 10**PLACES)
    decimal = f"{'-' if rounded < 0 else ''}{whole}.{part:0{PLACES}}".rstrip("0").rstrip(".")
    return f"{value} ({'=' if rounded == value else 'about'} {decimal})"


def _as_fraction(found: re.Match[str]) -> str:
    whole, part = found[1], found[2]
    if not whole and not part:
        return " . "
    return f"({int(whole + part)}/{10 ** len(part)})"


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() as number):
            return _sized(Fraction(number))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _sized(Fraction(_OPERATORS[type(sign)](_value(left), _value(right))))
    raise ToolError(_WORDS)


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ToolError("exponents must be integers")
    if (_bits(base) - 1) * abs(exponent.numerator) > MOST_BITS:  # a lower bound, so that no huge power is ever computed
        raise ToolError(f"the result has over {MOST_BITS} bits")
    return _sized(base**exponent.numerator)


def _sized(value: Fraction) -> Fraction:
    if _bits(value) > MOST_BITS:
        raise ToolError(f"the result has over {MOST_BITS} bits")
    return value


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


_OPERATORS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
