"""BrowserGym's action strings, `click('12')`, read as data: `ast` and literals, never `eval`. No BrowserGym is needed.

parse_actions("fill('a51', 'Paris')\\nclick('b7')")  ->  (Action("fill", ("a51", "Paris")), Action("click", ("b7",)))
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LONGEST = 65_536
MOST_ACTIONS = 16
_BID, _NUMBER, _TEXT = str, (int, float), str

SIGNATURES: Mapping[str, tuple[tuple[Any, ...], tuple[Any, ...], frozenset[str]]] = {
    # name: (types of the required arguments, types of the optional ones, keywords)
    "noop": ((), (_NUMBER,), frozenset({"wait_ms"})),
    "send_msg_to_user": ((_TEXT,), (), frozenset({"text"})),
    "report_infeasible": ((_TEXT,), (), frozenset({"reason"})),
    "scroll": ((_NUMBER, _NUMBER), (), frozenset({"delta_x", "delta_y"})),
    "scroll_at": ((_NUMBER,) * 4, (), frozenset({"x", "y", "dx", "dy"})),
    "fill": ((_BID, _TEXT), (bool,), frozenset({"bid", "value", "enable_autocomplete_menu"})),
    "check": ((_BID,), (), frozenset({"bid"})),
    "uncheck": ((_BID,), (), frozenset({"bid"})),
    "select_option": ((_BID, (str, list)), (), frozenset({"bid", "options"})),
    "click": ((_BID,), (str, list), frozenset({"bid", "button", "modifiers"})),
    "dblclick": ((_BID,), (str, list), frozenset({"bid", "button", "modifiers"})),
    "hover": ((_BID,), (), frozenset({"bid"})),
    "press": ((_BID, _TEXT), (), frozenset({"bid", "key_comb"})),
    "focus": ((_BID,), (), frozenset({"bid"})),
    "clear": ((_BID,), (), frozenset({"bid"})),
    "drag_and_drop": ((_BID, _BID), (), frozenset({"from_bid", "to_bid"})),
    "upload_file": ((_BID, (str, list)), (), frozenset({"bid", "file"})),
    "mouse_move": ((_NUMBER, _NUMBER), (), frozenset({"x", "y"})),
    "mouse_click": ((_NUMBER, _NUMBER), (str,), frozenset({"x", "y", "button"})),
    "mouse_dblclick": ((_NUMBER, _NUMBER), (str,), frozenset({"x", "y", "button"})),
    "mouse_down": ((_NUMBER, _NUMBER), (str,), frozenset({"x", "y", "button"})),
    "mouse_up": ((_NUMBER, _NUMBER), (str,), frozenset({"x", "y", "button"})),
    "mouse_drag_and_drop": ((_NUMBER,) * 4, (), frozenset({"from_x", "from_y", "to_x", "to_y"})),
    "mouse_upload_file": ((_NUMBER, _NUMBER, (str, list)), (), frozenset({"x", "y", "file"})),
    "keyboard_press": ((_TEXT,), (), frozenset({"key"})),
    "keyboard_down": ((_TEXT,), (), frozenset({"key"})),
    "keyboard_up": ((_TEXT,), (), frozenset({"key"})),
    "keyboard_type": ((_TEXT,), (), frozenset({"text"})),
    "keyboard_insert_text": ((_TEXT,), (), frozenset({"text"})),
    "goto": ((_TEXT,), (), frozenset({"url"})),
    "go_back": ((), (), frozenset()),
    "go_forward": ((), (), frozenset()),
    "new_tab": ((), (), frozenset()),
    "tab_close": ((), (), frozenset()),
    "tab_focus": ((int,), (), frozenset({"index"})),
}


@dataclass(frozen=True, slots=True)
class Action:
    """One action: its name and its arguments, which have the types that the name asks for."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


class BadAction(ValueError):
    """A reply holds no actions that can be done; the message is for the policy."""


def parse_actions(reply: str, *, most: int = MOST_ACTIONS) -> tuple[Action, ...]:
    """The actions of a reply, one call a line or several; a code fence around them is taken off.

    Raises:
        BadAction: the reply is no sequence of known calls with literal arguments.
    """
    text = _unfenced(reply[:LONGEST])
    try:
        tree = ast.parse(text.strip(), mode="exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadAction(f"cannot read the actions: {str(error)[:200]}") from error
    if not 1 <= len(tree.body) <= most:
        raise BadAction(f"give 1 to {most} actions, not {len(tree.body)}")
    return tuple(_action(node) for node in tree.body)


def _action(node: ast.stmt) -> Action:
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)):
        raise BadAction("an action is a call such as click('12')")
    call, name = node.value, node.value.func.id
    if name not in SIGNATURES:
        raise BadAction(f"no action {name[:40]!r}; there are: {', '.join(SIGNATURES)}")
    try:
        args = tuple(ast.literal_eval(arg) for arg in call.args)
        kwargs = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise BadAction(f"{name}: arguments must be plain values") from error
    required, optional, keywords = SIGNATURES[name]
    wrong = sorted(set(kwargs) - keywords)
    count = len(args) + len(kwargs)
    if wrong or not len(required) <= count <= len(required) + len(optional):
        most = len(required) + len(optional)
        raise BadAction(f"{name} takes {len(required)} to {most} arguments{f', and no {wrong[0]}' if wrong else ''}")
    for value, kind in zip(args, (*required, *optional), strict=False):
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise BadAction(f"{name}: {value!r:.40} has the wrong type")
    return Action(name, args, kwargs)


def _unfenced(text: str) -> str:
    _, fence, rest = text.partition("```")
    if not fence:
        return text
    inside = rest.partition("```")[0]
    first, newline, more = inside.partition("\n")
    return more if newline and first.strip().isalpha() else inside
