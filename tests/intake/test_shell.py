"""Launch scripts are read as a shell would run them, and never run."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mbridge_advisor.errors import RequestError
from mbridge_advisor.intake.shell import read_script


def last(text: str) -> list[str]:
    return read_script(text).commands[-1]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("A=1; run $A ${A} '$A' \"$A\"", ["1", "1", "$A", "1"]),
        ("run ${A:-2} ${A-3} ${B:=4}", ["2", "3", "4"]),
        ("A=\nrun x${A:-2}x x${A-3}x", ["x2x", "xx"]),
        ("A='1 2'; run $A \"$A\"", ["1", "2", "1 2"]),
        ('A=(1 \'2 3\'); run ${A[@]} "${A[@]}" "${A[*]}"', ["1", "2", "3", "1", "2 3", "1", "2 3"]),
        ("A=(1); A+=(2); run ${A[@]}", ["1", "2"]),
        ("A=1; A+=2; run $A", ["12"]),
        ("N=3; run $((N * 4 + 1)) $(( ${N} / 2 ))", ["13", "1"]),
        ("run $(date) `date` $1 ${X}", ["$(date)", "`date`", "$1", "${X}"]),
        ("run a \\\n  b # c\n", ["a", "b"]),
        ('A=b; if [ "$A" = "b" ]; then C=1; else C=2; fi; run $C', ["1"]),
        ("A=b; if [[ $A != b ]]; then C=1; elif [[ $A == b ]]; then C=2; else C=3; fi; run $C", ["2"]),
        ('if [ -z "" ]; then if [ 1 -gt 2 ]; then C=1; else C=4; fi; fi; run $C', ["4"]),
        ("for i in 1 2; do run $i; done", ["$i"]),
    ],
)
def test_words(script: str, words: list[str]) -> None:
    assert last(script)[1:] == words


def test_a_condition_that_can_t_be_decided_is_reported() -> None:
    script = read_script('if [ "$HOST" = "a" ]; then A=1; else A=2; fi; run $A')
    assert script.commands[-1] == ["run", "1"]
    assert len(script.undecided) == 1


def test_exports() -> None:
    script = read_script("export A=1 B=2\nC=3\nexport C\nD=4 run\nE=5")
    assert script.exported == {"A": "1", "B": "2", "C": "3", "D": "4"}


def test_doubling_variables_end() -> None:
    with pytest.raises(RequestError, match="grows without end"):
        read_script("A=xxxxxxxx\n" + "A=$A$A\n" * 60)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is the reference")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("ABC"),
            st.sampled_from(["1", "'x y'", '"$A z"', "$B", "${C:-q}", "$((2 + 3))", "(1 2)", "('a b' $A)", ""]),
        ),
        max_size=6,
    ),
    st.lists(st.sampled_from(["$A", '"$B"', "${C[@]}", '"${A[@]}"', "w", "'$B'", "${B:-d}", '"${C}"']), max_size=5),
)
def test_it_expands_as_bash_does(assignments: list[tuple[str, str]], words: list[str]) -> None:
    # Every variable starts with a value: what is unset stays as written here, and is empty in bash.
    script = "A=1; B=2; C=3\n" + "".join(f"{n}={v}\n" for n, v in assignments)
    ours = read_script(script + "run " + " ".join(words))
    program = script + "printf '%s\\0' run " + " ".join(words)
    theirs = subprocess.run(["bash", "-c", program], capture_output=True, check=True).stdout.decode().split("\0")[:-1]
    assert ours.commands[-1] == theirs
