"""What to write into a script, and the patch, which git takes; scripts that ran have noted where their calls stand."""

import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from strobe.probe import changes
from strobe.probe.changes import MADE
from strobe.tune.writing import applying, edits, patch

FOUND = ("engine.num_workers=4", "engine.persistent_workers=true")


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run a script's text, and tell where it made its loader."""
    monkeypatch.setattr(DataLoader, "__init__", DataLoader.__init__)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    monkeypatch.chdir(tmp_path)
    changes._change_loaders(DataLoader, {})

    def run(text: str) -> dict[str, Any]:
        script = tmp_path / "train.py"
        script.write_text(f"from torch.utils.data import DataLoader\n\n{text}")
        return {"loader": [vars(runpy.run_path(str(script))["loader"])[MADE]]}

    return run


CALLS = {
    'loader = DataLoader("items")\n': 'loader = DataLoader("items", num_workers=4, persistent_workers=True)\n',
    "loader = DataLoader([1], 2, num_workers=1 + 0)": (
        "loader = DataLoader([1], 2, num_workers=4, persistent_workers=True)"
    ),
    "loader = DataLoader([1], 1, None, None, None, 0)  # why\n": (
        "loader = DataLoader([1], 1, None, None, None, 4, persistent_workers=True)  # why\n"
    ),
    "loader = DataLoader(([1] if True else [2]), (2))\n": (
        "loader = DataLoader(([1] if True else [2]), (2), num_workers=4, persistent_workers=True)\n"
    ),
    """loader = DataLoader(
    ["é", 2],
    batch_size=2,
    shuffle=True,  # each epoch
)
""": """loader = DataLoader(
    ["é", 2],
    batch_size=2,
    num_workers=4, persistent_workers=True,
    shuffle=True,  # each epoch
)
""",
    """def made():
    é = [1]; return [DataLoader(é), DataLoader([2])][0]

loader = made()
""": """def made():
    é = [1]; return [DataLoader(é, num_workers=4, persistent_workers=True), DataLoader([2])][0]

loader = made()
""",
    """class Own(DataLoader):
    def __init__(self, items, *mine, **others):
        super().__init__(items, **others)

loader = Own([1], 2, 0, 0, 0, "mine")
""": """class Own(DataLoader):
    def __init__(self, items, *mine, **others):
        super().__init__(items, **others)

loader = Own([1], 2, 0, 0, 0, "mine", num_workers=4, persistent_workers=True)
""",
}


@pytest.mark.parametrize(("before", "after"), CALLS.items())
@pytest.mark.parametrize("in_a_repository", [True, False])
def test_git_applies_the_patch(noted: Any, tmp_path: Path, before: str, after: str, in_a_repository: bool) -> None:
    found = edits(FOUND, noted(before))
    if in_a_repository:
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    told, left_out = patch(found)
    assert left_out == []
    (tmp_path / "found.diff").write_text(told)
    subprocess.run(["git", "apply", "found.diff"], cwd=tmp_path, check=True)
    assert (tmp_path / "train.py").read_text() == f"from torch.utils.data import DataLoader\n\n{after}"


@pytest.mark.parametrize("script", ["train.py", "own/räder drehn.py", "beside/own/train.py"])
@pytest.mark.parametrize("here", [".", "own", "beside"])
@pytest.mark.parametrize("repository", [".", "beside", None])
def test_the_command_that_is_told_applies_it_from_where_the_search_ran(
    script: str, here: str, repository: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / script
    (tmp_path / "own").mkdir()
    (tmp_path / "beside" / "own").mkdir(parents=True)
    path.write_text("loader = DataLoader([1])\n")
    if repository is not None:
        subprocess.run(["git", "init", "-q"], cwd=tmp_path / repository, check=True)
    monkeypatch.chdir(tmp_path / here)
    spot = {"file": str(path), "line": 1, "end_line": 1, "column": 9, "end_column": 24}
    found = edits(FOUND, {"loader": [{"call": "DataLoader", "constructor": False, "given": []} | spot]})
    Path("found.diff").write_text(patch(found)[0])
    subprocess.run(shlex.split(applying(Path("found.diff"), found)), check=True)
    assert path.read_text() == "loader = DataLoader([1], num_workers=4, persistent_workers=True)\n"


def test_lines_end_as_the_files_do(noted: Any, tmp_path: Path) -> None:
    found = edits(FOUND, noted("loader = DataLoader(\r\n    [1],\r\n    batch_size=2,\r\n)\r\n"))
    (tmp_path / "found.diff").write_text(patch(found)[0])
    subprocess.run(["git", "apply", "found.diff"], cwd=tmp_path, check=True)
    assert (
        b"[1],\r\n    num_workers=4, persistent_workers=True,\r\n    batch_size" in (tmp_path / "train.py").read_bytes()
    )


def test_it_is_named_by_file_and_line(noted: Any) -> None:
    (edit,) = edits(FOUND, noted("\n\nloader = DataLoader([1])\n"))
    assert edit.text == "DataLoader(..., num_workers=4, persistent_workers=True)"
    assert edit.place == "train.py:5"


def test_a_loader_without_workers_keeps_nothing_that_torch_refuses(noted: Any) -> None:
    found = edits(["engine.num_workers=0"], noted("loader = DataLoader([1], num_workers=2, prefetch_factor=4)\n"))
    assert found[0].text == "DataLoader(..., num_workers=0, prefetch_factor=None)"
    assert "+loader = DataLoader([1], num_workers=0, prefetch_factor=None)\n" in patch(found)[0]
    (edit,) = edits(["engine.num_workers=0"], noted("loader = DataLoader([1], num_workers=2, timeout=9)\n"))
    assert edit.text == "DataLoader(..., num_workers=0, timeout=0)"


def test_of_a_class_with_a_constructor_what_that_is_to_call_is_named(noted: Any) -> None:
    own = "class Own(DataLoader):\n    def __init__(self):\n        super().__init__([1])\nloader = Own()\n"
    (edit,) = edits(["engine.num_workers=4"], noted(own))
    assert edit.told == "DataLoader(..., num_workers=4) in Own's constructor, called at train.py:6"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind = {'num_workers': 0}\nloader = DataLoader([1], **kind)\n", "is not given num_workers by name; change"),
        (
            "class Own(DataLoader):\n    def __init__(self):\n        super().__init__([1])\nloader = Own()\n",
            "Own at train.py:6 has a constructor of its own; change it there",
        ),
        ("import copy\nloader = copy.copy(DataLoader([1]))\n", ""),
    ],
)
def test_what_it_cannot_change_it_names(noted: Any, text: str, why: str) -> None:
    told, left_out = patch(edits(FOUND, noted(text)))
    assert (not told) == bool(why)
    assert not why or why in left_out[0]


def test_a_file_that_was_edited_since_is_left_alone(noted: Any, tmp_path: Path) -> None:
    found = edits(FOUND, noted("loader = DataLoader([1])\n"))
    for text, why in (
        (b"\n\n\n", "train.py:3 has changed since"),
        (b"# \xe9", f"{tmp_path / 'train.py'} is not written in UTF-8"),
        (b"loader = (", "'(' was never closed"),
    ):
        (tmp_path / "train.py").write_bytes(text)
        told, (left_out,) = patch(found)
        assert told == ""
        assert f"DataLoader(..., num_workers=4, persistent_workers=True) is not in the patch: {why}" in left_out
    (tmp_path / "train.py").unlink()
    assert "No such file" in patch(found)[1][0]


def test_what_stands_nowhere_is_written_all_the_same() -> None:
    others = ["matmul_precision=high", "trainer.precision=bf16-mixed", "model.fused=true"]
    found = edits(["environment.OPENBLAS_NUM_THREADS=1", "threads=2", *others], {})
    assert [edit.text for edit in found] == [
        "OPENBLAS_NUM_THREADS=1 before the command",
        "torch.set_num_threads(2)",
        'torch.set_float32_matmul_precision("high")',
        'Trainer(precision="bf16-mixed")',
        "Optimizer(..., fused=True)",
    ]
    told, (outside, inside) = patch(found[:2])
    assert told == ""
    assert outside == "OPENBLAS_NUM_THREADS=1 before the command is not in the patch: it is no line of the script"
    assert inside.endswith("is not in the patch: it is a line of its own, to write before training begins")
