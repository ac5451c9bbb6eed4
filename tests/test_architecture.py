"""The arrows between modules, and the shape of the tree."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from strobe import callbacks
from support.places import ROOT

SOURCE = ROOT / "src"
FILES = [ROOT / "train.py", *sorted(path for path in SOURCE.rglob("*.py")), *sorted(ROOT.glob("callbacks/*.py"))]
PLUGINS = "hydra_plugins"
# From the ground up. A layer imports only what stands before it; those of one line do not know each other.
LAYERS = (
    ("strobe.errors", "strobe.overrides", "strobe.callbacks"),
    ("strobe.measure",),
    ("strobe.records",),
    ("strobe.process", "strobe.present"),
    ("strobe.traces",),
    ("strobe.diagnose",),
    ("strobe.report",),
    ("strobe.probe", "strobe.duel"),
    ("strobe.attach",),
    ("strobe.view", "strobe.compare"),
    ("strobe.tune",),
    ("strobe.app.native", "strobe.app.needed", "strobe.app.storage"),
    ("strobe.app.config",),
    ("strobe.app.loaders",),
    ("strobe.app.engines", "strobe.app.model"),
    ("strobe.app.data",),
    ("strobe.app.build",),
    ("strobe.app.run",),
    ("strobe.app.sweep", "strobe.app.tuning"),
    ("strobe.bench",),
    ("strobe.validation",),
    (
        "strobe.cli",
        "strobe.__main__",
        "strobe.run",
        "strobe.ceilings",
        "strobe.clean",
        "strobe.doctor",
        "strobe.native",
        "strobe.pack",
        "train",
        PLUGINS,
    ),
)
APPLICATION = ("strobe.app", "strobe.bench", "strobe.validation", *LAYERS[-1])
APPLICATIONS_LIBRARIES = {"hydra", "omegaconf", "rasterio", "skimage", "torchvision", "imagecodecs", "tifffile"}
UPWARD = {  # commands that hand over to what lies above their package
    ("strobe.probe.__main__", "strobe.attach.place"),
    ("strobe.probe.driver", "strobe.attach.unasked"),
    ("strobe.duel.__main__", "strobe.attach.entry"),
    ("strobe.compare.__main__", "strobe.app.config.compose"),
    ("strobe.tune.__main__", "strobe.app.needed"),
    ("strobe.app.storage.__main__", "strobe.app.data.synthetic"),
    ("strobe.tune.__main__", "strobe.app.tuning.entry"),
}
MAY_COMPOSE = (
    "strobe.app.run",
    "strobe.app.tuning",
    "strobe.ceilings",
    "strobe.pack",
    "strobe.bench",
    "strobe.validation",
)
HEAVY = {"torch", "lightning", "numpy", "torchvision", "rasterio"}
BEFORE_TORCH = (
    "train",
    "strobe.ceilings",
    "strobe.app.config.checks",
    "strobe.app.config.register",
    "strobe.app.sweep.ending",
    "strobe.app.sweep.launcher",
    "strobe.cli",
    "strobe.__main__",
    "strobe.run",
    "strobe.attach.entry",
    "hydra_plugins.strobe_processes",
    "strobe.callbacks.normalise",
    "strobe.callbacks.spans",
    "strobe.process.launch",
    "strobe.probe.__main__",
    "strobe.app.run.apart",
    "strobe.view.__main__",
)
WITHOUT_TORCH = (
    "strobe.doctor",
    "strobe.measure.environment",
    "strobe.report.__main__",
    "strobe.bench.page",
    "strobe.compare.__main__",
    "strobe.compare.operators",
    "strobe.compare.page",
    "strobe.report.board",
    "strobe.report.page",
    "strobe.report.terminal",
)

MEASURES = (
    "measure.timing.Meter",
    "probe.loader.measure_loader",
    "probe.loader.measure_transfer",
    "probe.model.measure_model",
)
MEASURE_TOO = {  # beside strobe.probe, where ranks begin, end and fail together
    ("strobe.app.run.ceilings", "measure_model"),  # which makes models of other configurations
    ("strobe.bench.suites.profiling.cells", "Meter"),  # what a callback costs a step, without a ceiling
}

OPTIONAL = {  # imported when asked for, by the module's own users
    "strobe.callbacks.figures": {"matplotlib", "numpy"},
    "strobe.callbacks.timeline": {"matplotlib"},
    "strobe.callbacks.python_profile": {"pyinstrument"},
}


def name_of(path: Path) -> str:
    if path.is_relative_to(SOURCE):
        parts = path.relative_to(SOURCE).with_suffix("").parts
    elif path.is_relative_to(ROOT / "callbacks"):
        parts = ("strobe", *path.relative_to(ROOT).with_suffix("").parts)
    else:
        parts = (path.stem,)
    return ".".join(parts).removesuffix(".__init__")


MODULES = {name_of(path): ast.parse(path.read_text()) for path in FILES}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Those that importing a module runs: not those in functions, nor those for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from statements(child)


@cache
def imported(module: str, *, at_start: bool = False) -> frozenset[str]:
    """Full names of what a module imports, inside functions too unless ``at_start``; of modules and what is in them."""
    return frozenset(_imported(module, at_start))


def _imported(module: str, at_start: bool) -> Iterator[str]:
    for node in statements(MODULES[module]) if at_start else ast.walk(MODULES[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                assert inside(module, "strobe.callbacks"), "only callbacks import relatively: they can be lifted out"
                source = f"strobe.callbacks.{source}".rstrip(".")
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


def inside(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


DIRECT = {module: {name for name in imported(module) if name in MODULES} for module in MODULES}


def layer_of(module: str) -> int:
    for place, layer in enumerate(LAYERS):
        if any(inside(module, package) for package in layer):
            return place
    assert module in {"strobe", "strobe.app"}, f"{module} lies in no layer"
    return 0


def package_of(module: str) -> str:
    return next((package for layer in LAYERS for package in layer if inside(module, package)), module)


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
    assert {"train", "strobe.callbacks.steps", "strobe", "strobe.app.loaders.skimage"} <= MODULES.keys()
    assert "strobe.app.run.train" in DIRECT["train"]  # imported inside main()
    assert "strobe.callbacks.phases" in DIRECT["strobe.callbacks.steps"]
    assert "strobe.app.loaders.base" in reached("train")


def test_imports_run_one_way() -> None:
    below = [module for module in MODULES if layer_of(module) < len(LAYERS) - 1 and module != "strobe"]
    upward = {
        (module, name)
        for module in below  # strobe itself imports when it is asked
        for name in DIRECT[module]
        if package_of(name) != package_of(module) and layer_of(name) >= layer_of(module)
    }
    assert upward == UPWARD, "a layer imports only what lies below it"
    assert not [module for module in MODULES if module in reached(module)], "a circle"


def libraries(module: str) -> set[str]:
    return {name.partition(".")[0] for name in imported(module)}


def test_the_instrument_knows_nothing_of_the_application() -> None:
    instrument = [name for name in MODULES if not any(inside(name, part) for part in APPLICATION)]
    own = [name for name in instrument if not name.endswith(".__main__")]
    assert not [name for name in own if libraries(name) & APPLICATIONS_LIBRARIES]


def test_callbacks_can_be_lifted_out() -> None:
    allowed = {"lightning", "pytorch_lightning", "torch", *sys.stdlib_module_names}
    for module in (name for name in MODULES if inside(name, "strobe.callbacks")):
        foreign = {name for name in imported(module) if not inside(name, "strobe.callbacks")}
        assert {name.partition(".")[0] for name in foreign} <= allowed | OPTIONAL.get(module, set()), module


def test_callbacks_have_one_name() -> None:
    """Imported by two names, a module would have its state twice."""
    assert not [module for module in MODULES for name in imported(module) if inside(name, "callbacks")]


def test_only_runs_are_built() -> None:
    builders = [name for name in MODULES if "strobe.app.build.instantiate" in DIRECT[name]]
    assert not [one for one in builders if not any(inside(one, entry) for entry in (*MAY_COMPOSE, "strobe.app.build"))]


def test_one_module_instantiates() -> None:
    users = [name for name in MODULES if any(one.startswith("hydra.utils") for one in imported(name))]
    assert users == ["strobe.app.build.instantiate"]


def test_one_package_measures_ceilings() -> None:
    users = {
        (module, what.rpartition(".")[2])
        for module in MODULES
        for what in MEASURES
        if f"strobe.{what}" in imported(module) and not inside(module, "strobe.probe")
    }
    assert users == MEASURE_TOO, "sides are measured by strobe.probe.sides"


def started_with(module: str) -> set[str]:
    """Top-level names of the libraries that are loaded when a module is imported."""
    seen: set[str] = set()
    libraries: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        parent = name.rpartition(".")[0]
        own = {*imported(name, at_start=True), parent}
        libraries |= {one.partition(".")[0] for one in own if one}
        new = own & MODULES.keys() - seen
        seen |= new
        waiting += new
    return libraries


def test_what_answers_at_once_imports_nothing_heavy() -> None:
    assert not [module for module in BEFORE_TORCH if HEAVY & started_with(module)]


def test_what_reads_records_needs_no_torch() -> None:
    heavy = {"torch", "lightning", "tensorboard", "torchvision"}
    assert not [module for module in WITHOUT_TORCH if heavy & started_with(module)]


def test_imports_at_the_start_are_found() -> None:
    assert "torch" in started_with("strobe.app.run.train")
    assert "strobe.app.run.train" not in {*imported("train", at_start=True)}


def test_every_callback_is_exported() -> None:
    from lightning.pytorch import Callback
    from lightning.pytorch.profilers import Profiler

    assert all(issubclass(getattr(callbacks, name), (Callback, Profiler)) for name in callbacks.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        callbacks.Nothing  # noqa: B018


def test_callbacks_are_this_repositorys() -> None:
    assert Path(callbacks.__file__).resolve().is_relative_to(ROOT)


def test_a_module_is_short_and_says_what_it_is() -> None:
    assert not [name for name, tree in MODULES.items() if not ast.get_docstring(tree)]
    assert not [path for path in FILES if len(path.read_text().splitlines()) > 400]
    assert not [path for path in FILES if path.stem == "utils"]


def test_the_entry_point_is_tiny() -> None:
    assert len((ROOT / "train.py").read_text().splitlines()) < 40


@pytest.mark.parametrize(("group", "package"), [("data", "data"), ("loader", "loaders"), ("engine", "engines")])
def test_a_choice_and_its_module_have_one_name(group: str, package: str) -> None:
    choices = {path.stem: OmegaConf.load(path) for path in (ROOT / "conf" / group).glob("*.yaml")}
    assert choices
    for name, choice in choices.items():
        assert f"strobe.app.{package}.{name}" in MODULES
        assert choice["_target_"].startswith(f"strobe.app.{package}.{name}.")
