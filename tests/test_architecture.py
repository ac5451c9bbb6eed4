"""The arrows between modules, and the shape of the tree, as shared/design.md draws them."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from omegaconf import OmegaConf

import callbacks

FILES = [ROOT / "train.py", *sorted(ROOT.glob("callbacks/**/*.py")), *sorted(ROOT.glob("src/**/*.py"))]
LAYERS = ("native", "loaders", "engines", "data", "compose", "run")  # each may import those to its left
ENTRY_POINTS = ("strobe.run", "strobe.ceilings", "strobe.tune", "strobe.bench")
RECORD_READERS = ("strobe.diagnose", "strobe.report")
HEAVY = {"torch", "lightning", "numpy", "torchvision", "rasterio", "rich"}

OPTIONAL = {  # imported when asked for, by the module's own users
    "callbacks.timeline": {"PIL"},
    "callbacks.python_profile": {"pyinstrument"},
}


def name_of(path: Path) -> str:
    base = ROOT / "src" if path.is_relative_to(ROOT / "src") else ROOT
    return ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): ast.parse(path.read_text()) for path in FILES}


def imported(tree: ast.Module) -> Iterator[str]:
    """Full names of what a module imports anywhere, inside functions too; names that may be modules as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def inside(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


DIRECT = {module: {name for name in imported(tree) if name in MODULES} for module, tree in MODULES.items()}


def reached(module: str) -> set[str]:
    """Modules of this project that a module imports, by way of others too."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        new = DIRECT[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def test_all_modules_are_walked() -> None:
    assert {"train", "callbacks.steps", "strobe", "strobe.run", "strobe.loaders.skimage"} <= MODULES.keys()
    assert "strobe.run" in DIRECT["train"]  # imported inside main()
    assert "strobe.environment" in DIRECT["strobe.run.summary"]  # by `from strobe import environment`
    assert "strobe.loaders.base" in reached("train")


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_one_way(module: str) -> None:
    for place, layer in enumerate(LAYERS):
        if inside(module, f"strobe.{layer}"):
            upward = {f"strobe.{higher}" for higher in LAYERS[place + 1 :]} | {"train"}
            assert not [name for name in reached(module) for above in upward if inside(name, above)]
    assert module not in reached(module)


@pytest.mark.parametrize("module", [name for name in MODULES for reader in RECORD_READERS if inside(name, reader)])
def test_records_are_read_without_a_loader(module: str) -> None:
    assert not [name for name in reached(module) if inside(name, "strobe.loaders")]


@pytest.mark.parametrize("module", [name for name in MODULES if inside(name, "callbacks")])
def test_callbacks_can_be_lifted_out(module: str) -> None:
    allowed = {"callbacks", "lightning", "torch", *sys.stdlib_module_names, *OPTIONAL.get(module, ())}
    assert {name.partition(".")[0] for name in imported(MODULES[module])} <= allowed


@pytest.mark.parametrize("module", [name for name, imports in DIRECT.items() if "strobe.compose" in imports])
def test_only_entry_points_compose(module: str) -> None:
    assert any(inside(module, entry) for entry in ENTRY_POINTS)


def test_only_compose_instantiates() -> None:
    users = [
        module
        for module, tree in MODULES.items()
        if any(name.startswith(("hydra.utils", "hydra._internal")) for name in imported(tree))
    ]
    assert users == ["strobe.compose"]


def test_what_runs_before_torch_imports_nothing_heavy() -> None:
    code = "import sys, strobe.config, strobe.checks, strobe.launch, strobe.errors; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).split()
    assert {"hydra", "strobe.checks"} <= set(loaded)
    assert not HEAVY & set(loaded)


@pytest.mark.parametrize("module", ["callbacks.spans", "callbacks.normalise"])
def test_spans_and_the_command_start_without_torch(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).split()
    assert not HEAVY & set(loaded)


def test_every_callback_is_exported() -> None:
    from lightning.pytorch import Callback
    from lightning.pytorch.profilers import Profiler

    assert all(issubclass(getattr(callbacks, name), (Callback, Profiler)) for name in callbacks.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        callbacks.Nothing  # noqa: B018


def test_callbacks_are_this_repositorys() -> None:
    assert Path(callbacks.__file__).is_relative_to(ROOT)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(MODULES[name_of(path)])
    assert len(path.read_text().splitlines()) <= 250
    assert path.stem != "utils"


def test_the_entry_point_is_tiny() -> None:
    assert len((ROOT / "train.py").read_text().splitlines()) < 40


@pytest.mark.parametrize(("group", "package"), [("data", "data"), ("loader", "loaders"), ("engine", "engines")])
def test_a_choice_and_its_module_have_one_name(group: str, package: str) -> None:
    choices = {path.stem: OmegaConf.load(path) for path in (ROOT / "conf" / group).glob("*.yaml")}
    assert choices
    for name, choice in choices.items():
        assert f"strobe.{package}.{name}" in MODULES
        assert choice["_target_"].startswith(f"strobe.{package}.{name}.")
