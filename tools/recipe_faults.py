"""List the faults of shipped recipes that the rules find, ready to be reported upstream.

    python tools/recipe_faults.py --bridge-source Megatron-Bridge

judges every recipe of the facts at its own release, looks its lines up in the git repository, and writes
``docs/recipe-faults.md`` and ``docs/recipe-faults.json``. ``tests/data/recipe_exceptions.yaml`` says what must be known
of models outside the catalogue, and why each fault is one. Nothing of the repository is executed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from mbridge_advisor.advice.programs import program_for
from mbridge_advisor.advice.statements import statements
from mbridge_advisor.errors import AdvisorError
from mbridge_advisor.evidence.source import BRIDGE, Source, SourceError, open_source
from mbridge_advisor.evidence.tags import tag_of
from mbridge_advisor.inference import infer
from mbridge_advisor.intake.facts import build_facts
from mbridge_advisor.intake.recipe import request_of_recipe
from mbridge_advisor.intake.request import parse_request
from mbridge_advisor.knowledge import Knowledge, load, load_recipes

ROOT = Path(__file__).resolve().parents[1]
LISTED = ROOT / "tests" / "data" / "recipe_exceptions.yaml"
PAGE = ROOT / "docs" / "recipe-faults.md"
DATA = ROOT / "docs" / "recipe-faults.json"
Row = dict[str, Any]

INTRO = """# Faults in shipped recipes

Recipes that Megatron Bridge ships and that its own code, or that of the Megatron Core that the release pins, refuses as
they stand. Found by our rules over {recipes:,} recipes of {releases} releases; each was looked up in the repository at
the release's tag. Where a recipe's GPU count stands in its docstring only, the count may be what is wrong. Written by
`tools/recipe_faults.py`; the same as data in recipe-faults.json.
"""


def listed() -> dict[str, Row]:
    """The known faults by row id."""
    return {row["id"]: row for row in yaml.safe_load(LISTED.read_text(encoding="utf-8"))["exceptions"]}


def faults(base: Knowledge) -> Iterator[Row]:
    """Every listed fault with what the rules say of it, without lines."""
    known = listed()
    for path in sorted((ROOT / "knowledge" / "facts" / "recipes").glob("*.yaml")):
        for row in load_recipes(base, path.stem):
            if row["id"] in known:
                yield _fault({**row, "model_key": path.stem}, known[row["id"]], base)


def _fault(row: Mapping[str, Any], why: Mapping[str, Any], base: Knowledge) -> Row:
    request = parse_request(request_of_recipe(row, base), base)
    values = {**build_facts(request, base).values, **why.get("needs", {})}
    if why.get("needs"):
        values["hybrid_override_pattern"] = None  # none of these models marks its stages in a layer pattern
    if request.architecture is None and row.get("num_experts"):
        values["num_moe_experts"] = row["num_experts"]
    program = program_for(base, request.revision)
    found = [
        s
        for s in statements(infer(program, values, engine="reference"), program, base, kinds=("constraint",))
        if s.severity == "error"
    ]
    return {
        "id": row["id"],
        "release": row["tag"],
        "commit": request.revision.commit,
        "recipe": row["recipe"] + (f" ({row['variant']})" if row.get("variant") else ""),
        "path": row["path"],
        "line": row["line"],
        "gpus": row.get("num_gpus"),
        "gpus_from": row.get("num_gpus_source"),
        "faults": [
            {
                "rule": s.rule,
                "tag": tag_of(base, s.rule, row["tag"]),
                "wrong": {"en": s.message.en, "zh": s.message.zh},
                "fix": {"en": s.fix.en, "zh": s.fix.zh} if s.fix else None,
            }
            for s in found
        ],
        "places": [
            {"path": path, "line": int(line), "at": at or row["tag"]}
            for path, line, at in re.findall(r"((?:src|scripts|docs)/[\w./-]+):(\d+)(?: \((v[\d.]+)\))?", why["reason"])
        ],
        "why": {
            "en": why["reason"].rpartition(" ")[0] if re.search(r":\d+$", why["reason"]) else why["reason"],
            "zh": why["reason_zh"],
        },
    }


def verified(base: Knowledge, fault: Row, sources: Mapping[str, Source]) -> Row:
    """The fault with its recipe's line found anew, and the text of every place checked to exist.

    Raises:
        SourceError: the repository has no such file or line, or the recipe isn't defined there.
    """
    name = fault["recipe"].partition(" ")[0]
    lines = _lines(sources[fault["release"]], fault["path"])
    pattern = re.compile(rf"^(def {name}\(|{name}\s*(:[^=]+)?=)")
    at = [n for n, line in enumerate(lines, 1) if pattern.match(line)]
    decorated = fault["line"] not in at and any(0 < n - fault["line"] <= 3 for n in at)
    if not at or (fault["line"] not in at and not decorated):
        raise SourceError(f"{fault['path']} at {fault['release']}", f"defines {name} at {at}", "Correct the facts.")
    for place in fault["places"]:
        if place["line"] > len(_lines(sources[place["at"]], place["path"])):
            raise SourceError(
                f"{place['path']} at {place['at']}", f"has no line {place['line']}", "Correct the reason."
            )
    commits = {tag: revision.commit for tag, revision in base.revisions.items()}
    return {
        **fault,
        "line": min((n for n in at if n >= fault["line"]), default=fault["line"]),
        "url": _url(fault["commit"], fault["path"], fault["line"]),
        "places": [{**p, "url": _url(commits[p["at"]], p["path"], p["line"])} for p in fault["places"]],
    }


def _lines(source: Source, path: str) -> list[str]:
    raw = source.read(path)
    if raw is None:
        raise SourceError(str(source), f"has no {path}", "Give the repository of Megatron Bridge with all tags.")
    return raw.decode("utf-8", "replace").splitlines()


def _url(commit: str, path: str, line: int) -> str:
    return f"https://github.com/{BRIDGE}/blob/{commit}/{path}#L{line}"


def page(data: Mapping[str, Any]) -> str:
    """The page, newest release first."""
    out = [INTRO.format(**data)]
    for release in sorted({f["release"] for f in data["faults"]}, reverse=True):
        found = [f for f in data["faults"] if f["release"] == release]
        out += [f"## {release}: {len(found)} recipes", ""]
        for fault in found:
            out.append(f"### {fault['recipe']}")
            out += ["", f"[{fault['path']}:{fault['line']}]({fault['url']})", ""]
            for one in fault["faults"]:
                out.append(f"- {one['rule']} ({one['tag']}): {one['wrong']['en']}")
                if one["fix"]:
                    out.append(f"  Fix: {one['fix']['en']}")
            out.append(f"- Why: {fault['why']['en']}")
            places = {f"{p['path']}:{p['line']}": p for p in fault["places"]}
            out.append("- Lines: " + ", ".join(f"[{name}]({p['url']}) ({p['at']})" for name, p in places.items()))
            out.append("")
    return "\n".join(out).rstrip("\n") + "\n"


def main() -> int:
    """Write both files; exit status 2 where the source can't be used."""
    parser = argparse.ArgumentParser(description="List the faults of shipped recipes.")
    parser.add_argument("--bridge-source", type=Path, required=True, help="git repository of Megatron Bridge")
    options = parser.parse_args()
    base = load()
    try:
        sources = {tag: open_source(BRIDGE, options.bridge_source, tag) for tag in base.revisions}
        rows = [verified(base, fault, sources) for fault in faults(base)]
    except AdvisorError as error:
        print(error, file=sys.stderr)
        return 2
    every = [r for p in (ROOT / "knowledge/facts/recipes").glob("*.yaml") for r in load_recipes(base, p.stem)]
    data = {"repo": BRIDGE, "recipes": len(every), "releases": len({r["tag"] for r in every}), "faults": rows}
    DATA.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(data), encoding="utf-8")
    print(f"{len(rows)} recipes with faults, {sum(len(r['faults']) for r in rows)} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
