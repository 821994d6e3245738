"""One call, answered: JSON in, JSON out. Never raises, reads no file that the call names, keeps nothing."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..advice.results import Answer
from ..errors import ExpressionError, RequestError
from ..inference import InferenceError
from ..intake.notes import Note
from ..intake.request import Request, parse_request
from ..knowledge import Knowledge, load
from ..knowledge.schema import near_miss
from . import schemas
from .problems import ServiceError

log = logging.getLogger(__name__)

Arguments = Mapping[str, Any]
_TYPES = {"string": str, "integer": int, "object": dict}


@dataclass(frozen=True)
class Reply:
    """What a call is answered.

    Attributes:
        status: as in HTTP: 200, or a problem's.
        body: JSON: the answer, or a problem as ``schemas/problem.schema.json`` describes.
    """

    status: int
    body: bytes

    @classmethod
    def of(cls, data: Any, status: int = 200) -> Reply:
        """A reply with ``data`` as its body."""
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        # Half a surrogate pair can't be encoded; with a backslash it is the JSON that it came from.
        return cls(status, text.encode("utf-8", "backslashreplace"))

    @classmethod
    def problem(cls, problem: ServiceError) -> Reply:
        """A reply that tells a problem."""
        return cls.of(problem.to_dict(), problem.status)


def answer(operation: str, raw: bytes, *, told: bool = False) -> Reply:
    """Answer one call.

    Args:
        operation: a name of :func:`~mbridge_advisor.serve.schemas.operations`.
        raw: its arguments, JSON.
        told: give the answer twice, for machines and in Markdown: ``{"data": .., "text": ..}``.
    """
    try:
        arguments = _checked(operation, _read(raw))
        return Reply.of(_HANDLERS[operation](arguments, load(), told))
    except ServiceError as problem:
        return Reply.problem(problem)
    except RequestError as problem:
        return Reply.problem(ServiceError.of(problem))
    except RecursionError:
        return Reply.problem(ServiceError("bad-request", "The request is nested too deep."))
    except (ExpressionError, InferenceError) as problem:  # e.g. numbers that leave the range of floats
        return Reply.problem(ServiceError("bad-request", str(problem)[:500]))
    except Exception:  # a fault of ours
        log.exception("%s failed", operation)
        return Reply.problem(ServiceError("internal", "The service has a fault; its log tells more."))


def _read(raw: bytes) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no number")

    try:
        return json.loads(raw, parse_constant=refuse)
    except (ValueError, RecursionError) as problem:
        raise ServiceError("bad-json", f"The body is not JSON: {str(problem)[:100]}.") from None


def _checked(operation: str, given: Any) -> dict[str, Any]:
    """The arguments with their defaults, as the operation's schema has them.

    What is inside a request is left to :func:`parse_request`, which knows the vocabulary and says better what is wrong.
    """
    shape = schemas.operations()[operation]
    known = schemas.arguments(operation)
    if not isinstance(given, dict):
        raise RequestError(operation, given, "is not a mapping", f"Give an object with some of: {', '.join(known)}.")
    out = {name: part["default"] for name, part in known.items() if "default" in part}
    for name, value in given.items():
        if name not in known:
            hint = near_miss(name, known)
            raise RequestError(name, value, f"is not an argument of {operation}", hint[:1].upper() + hint[1:])
        _fit(name, value, known[name])
        out[name] = value
    for name in shape.get("required", ()):
        if name not in out:
            raise RequestError(name, None, "is missing", known[name]["description"])
    return out


def _fit(name: str, value: Any, part: Mapping[str, Any]) -> None:
    if "enum" in part:
        if value not in part["enum"]:
            raise RequestError(name, value, "isn't allowed here", f"One of: {', '.join(part['enum'])}.")
        return
    kind = part.get("type", "object")
    if not isinstance(value, _TYPES[kind]) or isinstance(value, bool):
        raise RequestError(name, value, f"is no {kind}", part["description"])
    if isinstance(value, str):
        low, high, size, unit = part.get("minLength", 0), part.get("maxLength", 2**40), len(value), " characters"
    elif isinstance(value, int):
        low, high, size, unit = part["minimum"], part["maximum"], value, ""
    else:
        return
    if not low <= size <= high:
        raise RequestError(name, value, "is out of range", f"{low} to {high}{unit}.")


def _advise(arguments: Arguments, base: Knowledge) -> Answer:
    from ..advice.advise import advise
    from ..advice.inputs import with_notes

    request, notes = _request(arguments, base, search=True)
    return with_notes(advise(request, top=arguments["top"], knowledge=base), notes)


def _check(arguments: Arguments, base: Knowledge) -> Answer:
    from ..advice.check import check
    from ..advice.inputs import with_notes

    request, notes = _request(arguments, base)
    return with_notes(check(request, knowledge=base), notes)


def _estimate(arguments: Arguments, base: Knowledge) -> Answer:
    from ..advice.estimate import estimate
    from ..advice.inputs import with_notes

    request, notes = _request(arguments, base)
    return with_notes(estimate(request, knowledge=base), notes)


def _diagnose(arguments: Arguments, base: Knowledge) -> Answer:
    from ..advice.inputs import with_notes
    from ..diagnosis.criteria import configuration
    from ..diagnosis.diagnose import diagnose

    request, notes = _mapping(arguments, base)
    before, plan = arguments.get("before"), arguments.get("plan")
    for each in (request, before, None if plan is None else configuration(plan)):
        if each is not None:
            parse_request(each, base, files=False)  # here, since diagnose() wants the mapping and reads files
    text = arguments.get("log")
    result = diagnose(
        request,
        log=None if text is None else io.BytesIO(text.encode("utf-8", "replace")),
        symptom=arguments.get("symptom", ""),
        before=before,
        plan=plan,
        knowledge=base,
    )
    return with_notes(result, notes)


def _request(arguments: Arguments, base: Knowledge, *, search: bool = False) -> tuple[Request, tuple[Note, ...]]:
    """The checked request, and what became of the ``config``."""
    request, notes = _mapping(arguments, base, search=search)
    if request is None:
        raise RequestError("request", None, "is missing", "Give a request, the text of a config, or both.")
    return parse_request(request, base, files=False), notes


def _mapping(
    arguments: Arguments, base: Knowledge, *, search: bool = False
) -> tuple[Mapping[str, Any] | None, tuple[Note, ...]]:
    """The request with what the ``config`` tells beside it; without what ``advise`` searches, where that is asked."""
    request, config = arguments.get("request"), arguments.get("config")
    if config is None:
        return request, ()
    from ..advice.inputs import unpinned
    from ..intake.read import read_input

    bridge = (request or {}).get("bridge")
    start, notes = read_input(config, arguments.get("kind"), bridge=bridge, knowledge=base, files=False)
    if search:
        start, more = unpinned(start)
        notes = (*notes, *more)
    return _over(start, request or {}, base), notes


def _over(start: Mapping[str, Any], request: Mapping[str, Any], base: Knowledge) -> dict[str, Any]:
    """``start`` with all that ``request`` gives, however either spells it."""
    out = dict(start)
    for key, part in request.items():
        former = out.get(key)
        if key == "model" or not isinstance(part, Mapping) or not isinstance(former, Mapping):
            out[key] = part
            continue
        given = {base.by_field[name].name for name in part if name in base.by_field}
        kept = {k: v for k, v in former.items() if k not in base.by_field or base.by_field[k].name not in given}
        out[key] = {**kept, **part}
    return out


def _printed(
    printer: str, function: Callable[[Arguments, Knowledge], Any]
) -> Callable[[Arguments, Knowledge, bool], Any]:
    """A handler for what has a Markdown form, too."""

    def handle(arguments: Arguments, base: Knowledge, told: bool) -> Any:
        result, lang = function(arguments, base), arguments["lang"]
        data = result.to_dict(lang)
        if not told:
            return data
        from ..advice.render import markdown

        return {"data": data, "text": getattr(markdown, printer)(result, lang)}

    return handle


def _explain(arguments: Arguments, base: Knowledge) -> Any:
    from ..advice.explain import explain

    try:
        return explain(arguments["name"], bridge=arguments.get("bridge"), knowledge=base)
    except RequestError as problem:
        raise ServiceError.of(problem, "not-found" if problem.field == "name" else "bad-request") from None


def _listing(name: str) -> Callable[[Arguments, Knowledge, bool], Any]:
    def handle(arguments: Arguments, base: Knowledge, told: bool) -> Any:
        from ..advice import listing

        if name == "rules":
            return listing.rules(base, **{**arguments, "words": arguments.get("words", "").split()})
        return getattr(listing, name)(base, arguments["lang"])

    return handle


_HANDLERS: Mapping[str, Callable[[Arguments, Knowledge, bool], Any]] = {
    "advise": _printed("advice", _advise),
    "check": _printed("report", _check),
    "estimate": _printed("estimate", _estimate),
    "diagnose": _printed("diagnosis", _diagnose),
    "explain": _printed("explanation", _explain),
    **{name: _listing(name) for name in ("rules", "models", "gpus", "revisions")},
}
