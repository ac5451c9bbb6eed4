"""What docs/extending.md has people write: its loader reads, its data set is found, its rule finds."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from strobe.diagnose.predict import step_of
from strobe.records.run import Record
from support.composing import composed_data
from support.places import ROOT
from support.recorded import example

TEXT = (ROOT / "docs" / "extending.md").read_text()
PYTHON = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
YAML = dict(re.findall(r"^`conf/([\w/]+)\.yaml`:\n\n```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))


def executed(name: str, code: str) -> Any:
    module = ModuleType(name)
    exec(code, vars(module))
    return module


def test_the_loader_and_the_data_set_give_the_same_batches_as_ours(
    sample_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, code in zip(("strobe.app.loaders.imageio", "strobe.app.data.fields"), PYTHON, strict=False):
        monkeypatch.setitem(sys.modules, name, executed(name, code))
    for name, content in YAML.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text(content)
    assert set(YAML) == {"loader/imageio", "data/fields"}
    root = f"data.root={sample_root / 'tiles' / 'seed42-10'}"
    batches = []
    for choice in (["data=eurosat", "loader=skimage"], ["data=fields", "loader=imageio"]):
        data = composed_data(f"hydra.searchpath=[file://{tmp_path}]", *choice, "data.bands=[3,2,1]", root)
        data.prepare_data()
        data.setup("fit")
        batches.append(next(iter(data.val_dataloader())))
    for ours, theirs in zip(*batches, strict=True):
        assert torch.equal(ours, theirs)


def test_the_rule_finds() -> None:
    rule = executed("gradient_clipping", PYTHON[2]).gradient_clipping
    record = example("loader")
    step = step_of(record)
    assert step is not None
    assert rule(record, step) is None
    slow = record.summary["step_seconds"] | {"clipping": step.length * step.images / 2}
    found = rule(Record(record.summary | {"step_seconds": slow}, record.config), step)
    assert found.cause == "gradient_clipping"
    assert found.predicted_speedup.low > 1
