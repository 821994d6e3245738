"""Formulas of the knowledge as MathML, which browsers draw by themselves."""

from __future__ import annotations

from html import escape

from mbridge_advisor.expressions.parser import Node, parse

_LEVEL = {"if": 0, "or": 1, "and": 2, "not": 3, "+": 5, "-": 5, "*": 6, "%": 6, "neg": 7}
_SIGN = {"==": "=", "!=": "≠", "<": "<", "<=": "≤", ">": ">", ">=": "≥", "in": "∈", "and": "∧", "or": "∨",
         "+": "+", "-": "−", "*": "·", "%": "mod"}  # fmt: skip


def mathml(name: str, source: str) -> str:
    """``name = formula`` as a block of MathML.

    Raises:
        ExpressionError: the formula is outside the language.
    """
    head = _name(name) + _op("=") if name else ""
    return f'<math display="block">{head}{_node(parse(source))}</math>'


def _node(node: Node, above: int = -1) -> str:
    level = _LEVEL.get(node.op, 4 if node.op in _SIGN else 9)
    text = _plain(node)
    return f"<mrow>{_op('(')}{text}{_op(')')}</mrow>" if level < above else f"<mrow>{text}</mrow>"


def _plain(node: Node) -> str:
    match node.op:
        case "literal":
            return _text(str(node.value)) if isinstance(node.value, bool | str) else f"<mn>{node.value}</mn>"
        case "list":
            items = node.value if isinstance(node.value, tuple) else ()
            return _op("{") + _op(",").join(_text(str(item)) for item in items) + _op("}")
        case "name":
            return _name(str(node.value))
        case "given":
            return _call("given", _name(str(node.value)))
        case "if":
            return _cases(node)
        case "/":
            return f"<mfrac>{_node(node.args[0])}{_node(node.args[1])}</mfrac>"
        case "//":
            return f"{_op('⌊')}<mfrac>{_node(node.args[0])}{_node(node.args[1])}</mfrac>{_op('⌋')}"
        case "ceil":
            return f"{_op('⌈')}{_node(node.args[0])}{_op('⌉')}"
        case "abs":
            return f"{_op('|')}{_node(node.args[0])}{_op('|')}"
        case "log2":
            return f"<msub><mi>log</mi><mn>2</mn></msub>{_op('(')}{_node(node.args[0])}{_op(')')}"
        case "not":
            return _op("¬") + _node(node.args[0], 8)
        case "neg":
            return _op("−") + _node(node.args[0], 8)
        case "and" | "or":
            return _op(_SIGN[node.op]).join(_node(arg, _LEVEL[node.op] + 1) for arg in node.args)
        case op if op in _SIGN:
            level = _LEVEL.get(op, 4)
            return _node(node.args[0], level) + _op(_SIGN[op]) + _node(node.args[1], level + 1)
    return _call(node.op, _op(",").join(_node(arg) for arg in node.args))


def _cases(node: Node) -> str:
    rows = []
    while node.op == "if":
        test, then, node = node.args
        rows.append((_node(then), f"<mtext>if&#160;</mtext>{_node(test)}"))
    rows.append((_node(node), "<mtext>else</mtext>"))
    cells = "".join(f"<mtr><mtd>{value}</mtd><mtd>{when}</mtd></mtr>" for value, when in rows)
    return f'<mo>{{</mo><mtable columnalign="left left">{cells}</mtable>'


def _call(name: str, inside: str) -> str:
    return f"<mi>{name}</mi>{_op('(')}{inside}{_op(')')}"


def _op(sign: str) -> str:
    return f"<mo>{escape(sign)}</mo>"


def _text(text: str) -> str:
    return f"<mtext>{escape(text)}</mtext>"


def _name(name: str) -> str:
    return f'<mi mathvariant="normal">{escape(name)}</mi>'
