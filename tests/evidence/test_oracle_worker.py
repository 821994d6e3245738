"""The parts of the oracle's worker that need no torch: stand-ins, and finding what raised."""

import importlib
import importlib.util
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from mbridge_advisor.errors import RequestError
from mbridge_advisor.evidence.oracle import Oracle, Sources, worker


@pytest.fixture
def stand_ins() -> Iterator[None]:
    before = set(sys.modules)
    finder = worker._StandInFinder()
    sys.meta_path.insert(0, finder)
    yield
    sys.meta_path.remove(finder)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_stand_in_serves_as_module_base_class_decorator_and_hint(stand_ins: None, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(
        textwrap.dedent(
            """
            import modelopt.torch.opt as mto
            from abc import ABC
            from transformers import AutoConfig, PreTrainedModel, auto_docstring
            import triton

            @auto_docstring
            class Mine(PreTrainedModel, ABC):
                def hint(self, value: AutoConfig | None) -> "AutoConfig[int]":
                    return value

            @triton.jit
            def kernel(x):
                return x + 1

            @triton.autotune(configs=[], key=["x"])
            def tuned(x):
                return x + 2

            AutoConfig.register("mine", Mine, exist_ok=True)
            RESULT = (kernel(1), tuned(1), Mine().hint(None), triton.__version__, mto.anything.at.all)
            """
        ),
        encoding="utf-8",
    )
    spec = importlib.util.spec_from_file_location("user", tmp_path / "user.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.RESULT[:4] == (2, 3, None, worker.VERSIONS["triton"])


def test_only_listed_modules_have_a_stand_in(stand_ins: None) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_at_all")


SOURCE = """\
class Config:
    def finalize(self):
        assert (
            self.size > 0
        ), "size"
        if self.other:
            raise ValueError(
                "other"
            )
        helper()


def helper():
    return 1 % 0
"""


@pytest.mark.parametrize(
    ("line", "explicit", "symbol"),
    [
        (3, True, "Config.finalize"),
        (4, True, "Config.finalize"),
        (8, True, "Config.finalize"),
        (6, False, "Config.finalize"),
        (10, False, "Config.finalize"),
        (14, False, "helper"),
        (12, False, ""),
    ],
)
def test_what_raised_is_found_by_its_statement(tmp_path: Path, line: int, explicit: bool, symbol: str) -> None:
    path = tmp_path / "source.py"
    path.write_text(SOURCE, encoding="utf-8")
    assert worker._raises(str(path), line) is explicit
    assert worker._symbol(str(path), line) == symbol


def test_names() -> None:
    assert worker._plain_name("tp") == "tensor_model_parallel_size"
    assert worker._plain_name("model.num_layers") == "num_layers"
    assert worker._plain_name("model.seq_length") == "model.seq_length"  # not the data set's
    assert worker._plain_name("ddp.nccl_ub") == "ddp.nccl_ub"


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="this interpreter has torch")
def test_an_interpreter_without_torch_is_said(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="No module named 'torch'"), Oracle(Sources((tmp_path,)), sys.executable):
        pass
