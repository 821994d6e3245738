"""The exported skill: valid, complete, the same in both languages, deterministic, and confirmed by the engine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import mbridge_advisor as engine
import pytest
import yaml
from click.testing import CliRunner
from mbridge_advisor.cli import cli
from mbridge_advisor.errors import RequestError
from mbridge_advisor.export.skill import ExportError, build_skill, export_skill, words
from mbridge_advisor.knowledge import load
from mbridge_advisor.knowledge.schema import mistakes

BASE = load()
LANGS = ("en", "zh")
BUILT = {(lang, tag): build_skill(lang=lang, bridge=tag) for lang in LANGS for tag in BASE.revisions}
EVERY = pytest.mark.parametrize(("lang", "tag"), list(BUILT), ids=lambda value: value)
NEWEST = BASE.latest.tag
SECTIONS = """Purpose
Prerequisites
Instructions
Boundaries
Abnormal input
Failing runs
Examples
Must not
Troubleshooting
Limitations
Compatibility
Evidence
References
Maintenance""".splitlines()


def front_matter(text: str) -> tuple[dict[str, Any], str]:
    _, head, body = text.split("---\n", 2)
    return yaml.safe_load(head), body


@pytest.mark.parametrize("lang", LANGS)
def test_the_reference_validator_accepts_it(lang: str, tmp_path: Path) -> None:
    validate = pytest.importorskip("skills_ref").validate
    assert validate(export_skill(tmp_path, lang=lang)) == []  # type: ignore[arg-type]


@EVERY
def test_it_keeps_the_limits_of_the_specification(lang: str, tag: str) -> None:
    data, body = front_matter(BUILT[lang, tag]["SKILL.md"])
    assert set(data) == {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", data["name"])
    assert len(data["name"]) <= 64
    assert 1 <= len(data["description"]) <= 1024
    assert 1 <= len(data["compatibility"]) <= 500
    assert data["license"] == "Apache-2.0"
    assert all(isinstance(k, str) and isinstance(v, str) for k, v in data["metadata"].items())
    assert {"author", "tags", "version"} <= set(data["metadata"])
    assert data["metadata"]["megatron-bridge"] == tag
    assert body.count("\n") < 500
    assert "{{" not in body
    for section in SECTIONS:
        assert re.search(rf"^## {section}", body, re.M), section


def test_no_tool_is_allowed_that_writes_runs_or_listens() -> None:
    tools = re.findall(r"Bash\(mbridge-advisor (\w+):\*\)", words()["tools"])
    assert set(tools) <= set(cli.commands)
    assert not {"serve", "mcp", "verify", "export", "batch", "evidence", "matrix"} & set(tools)
    assert re.sub(r"Bash\(mbridge-advisor \w+:\*\)", "", words()["tools"]).split() == ["Read"]


@EVERY
def test_links_resolve(lang: str, tag: str) -> None:
    built = BUILT[lang, tag]
    for name, text in built.items():
        if not name.endswith(".md"):
            continue
        for target in re.findall(r"\]\((?!<?https?:)([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            where = str(Path(name).parent / path) if path else name
            assert where in built, f"{name}: {target}"
            if anchor:
                assert anchor in {slug(line) for line in built[where].splitlines() if line.startswith("#")}, target


def slug(heading: str) -> str:
    """Anchor of a heading as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lstrip("# ").lower()).replace(" ", "-")


@EVERY
def test_rules_named_are_rules_and_all_are_there(lang: str, tag: str) -> None:
    text = "\n".join(BUILT[lang, tag].values())
    named = set(re.findall(r"MB-[A-Z0-9]+-\d{3}", text))
    assert named <= set(BASE.rules)
    here = {rule.id for rule in BASE.rules.values() if rule.at(BASE.revisions[tag])}
    headed = re.findall(r"^## (MB-[A-Z0-9]+-\d{3}) ", text, re.M)
    assert len(headed) == len(set(headed))
    assert set(headed) == here


@pytest.mark.parametrize("tag", BASE.revisions)
def test_both_languages_have_the_same_structure(tag: str) -> None:
    en, zh = BUILT["en", tag], BUILT["zh", tag]
    assert list(en) == list(zh)

    def shape(text: str) -> list[str]:
        kinds = [(re.match(r"#+|- |\||\d\.|```", line.strip()) or [""])[0] for line in text.splitlines()]
        return [kind for kind in kinds if kind]

    for name in en:
        if name.endswith(".md"):
            assert shape(en[name]) == shape(zh[name]), name
    assert [e["id"] for e in json.loads(en["evals/evals.json"])] == [
        e["id"] for e in json.loads(zh["evals/evals.json"])
    ]
    assert re.search(r"[一-鿿]", en["SKILL.md"]) is None


@EVERY
def test_card_and_evals_follow_their_schemas(lang: str, tag: str) -> None:
    card = yaml.safe_load(BUILT[lang, tag]["card.yaml"])
    assert mistakes(card, "skill_card") == []
    here = [rule.id for rule in BASE.rules.values() if rule.at(BASE.revisions[tag])]
    assert set(here) <= set(card["validation_status"])
    evals = json.loads(BUILT[lang, tag]["evals/evals.json"])
    assert mistakes(evals, "skill_evals") == []
    assert len({case["id"] for case in evals}) == len(evals)
    assert {case["expected_skill"] for case in evals} == {words()["name"][lang], None}


def test_every_page_has_its_words() -> None:
    stems = {f"{Path(rule.file).parent.name}/{Path(rule.file).stem}" for rule in BASE.rules.values()}
    assert stems == set(words()["topics"])
    assert set(words()["first_rules"]) <= set(BASE.rules)
    assert set(words()["first_quantities"]) <= set(BASE.quantities)


def cases() -> list[Any]:
    return [
        pytest.param(case, id=f"{tag}-{case['id']}")
        for tag in BASE.revisions
        for case in json.loads(BUILT["en", tag]["evals/evals.json"])
        # A search is the same work at each release: once is enough.
        if "confirm" in case and (tag == NEWEST or case["confirm"]["operation"] != "advise")
    ]


@pytest.mark.parametrize("case", cases())
def test_the_engine_confirms_the_evals(case: dict[str, Any]) -> None:
    confirm = case["confirm"]
    if "error" in confirm:
        with pytest.raises(RequestError) as caught:
            answer(confirm)
        assert caught.value.field == confirm["error"]
        return
    found = answer(confirm)
    for path, value in confirm.get("equals", {}).items():
        assert at(found, path) == value, path
    spoken = {each["rule"] for part in ("findings", "causes") for each in found.get(part, [])}
    assert set(confirm.get("rules", ())) <= spoken
    assert "equals" in confirm or "rules" in confirm


def answer(confirm: dict[str, Any]) -> dict[str, Any]:
    operation = confirm["operation"]
    if operation == "explain":
        return engine.explain(confirm["name"]).to_dict()
    if operation == "diagnose":
        return engine.diagnose(confirm.get("request"), symptom=confirm["symptom"]).to_dict()
    found: dict[str, Any] = getattr(engine, operation)(confirm["request"]).to_dict()
    return found


def at(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data


def test_the_same_knowledge_gives_the_same_bytes_and_an_export_can_be_renewed(tmp_path: Path) -> None:
    first = export_skill(tmp_path)
    before = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    assert export_skill(tmp_path) == first
    assert {path: path.read_bytes() for path in first.rglob("*") if path.is_file()} == before
    assert {str(path.relative_to(first)) for path in before} == set(BUILT["en", NEWEST])


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / words()["name"]["en"]
    target.mkdir()
    (target / "SKILL.md").write_text("---\nname: somebody-elses\n---\n", encoding="utf-8")
    with pytest.raises(ExportError, match="not an export"):
        export_skill(tmp_path)
    assert [path.name for path in target.iterdir()] == ["SKILL.md"]
    (target / "SKILL.md").unlink()
    export_skill(tmp_path)
    (target / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ExportError, match=r"notes\.txt"):
        export_skill(tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ExportError):
        export_skill(tmp_path / "file")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / target.name).symlink_to(tmp_path)
    with pytest.raises(ExportError, match="not a folder"):
        export_skill(tmp_path / "linked")


def test_the_command(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["export", "skill", "--lang", "zh", "--bridge", "v0.5.1", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "v0.5.1" in (Path(done.output.strip()) / "SKILL.md").read_text(encoding="utf-8")
    done = CliRunner().invoke(cli, ["export", "skill", "--bridge", "v7", str(tmp_path)])
    assert done.exit_code == 2
    assert "v7" in done.output


@pytest.mark.parametrize("lang", LANGS)
def test_commands_in_the_text_exist_with_their_options(lang: str) -> None:
    spans = re.findall(r"`mbridge-advisor ([^`]+)`", BUILT[lang, NEWEST]["SKILL.md"])
    assert len(spans) > 10
    for span in spans:
        name, *rest = span.split()
        if name == "--version":
            continue
        command: Any = cli.commands[name]
        if hasattr(command, "commands"):
            command = command.commands[rest[0]]
        known = {option for param in command.params for option in param.opts}
        assert {word for word in rest if word.startswith("--")} <= known, span
