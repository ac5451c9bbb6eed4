"""What the files of a script can be seen to do outside its process: write files, use the network or a database."""

import ast
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path

from strobe.errors import ConfigError, StrobeError

MOST = 8  # that are named
MOST_FILES = 200  # that are read
OUTSIDE = {  # modules whose import tells
    "network": (
        *("requests", "httpx", "aiohttp", "urllib", "socket", "boto3", "paramiko", "huggingface_hub"),
        *("urllib3", "fsspec", "s3fs", "gcsfs", "google", "datasets"),
        *("wandb", "mlflow", "neptune", "comet_ml", "clearml"),
    ),
    "a database": (
        *("sqlite3", "psycopg", "psycopg2", "asyncpg", "pymysql", "MySQLdb", "mysql", "pymongo", "redis"),
        *("sqlalchemy", "duckdb", "clickhouse_connect", "elasticsearch"),
    ),
    "a queue": ("kafka", "confluent_kafka", "aiokafka", "pika", "zmq", "nats", "celery"),
    "other processes": ("subprocess",),
    "locks": ("fcntl", "filelock", "portalocker"),
}
WRITING = (  # functions and methods by their last name
    *("write_text", "write_bytes", "mkdir", "makedirs", "touch", "unlink", "rmtree", "rmdir", "rename", "symlink_to"),
    *("save", "savez", "save_file", "save_checkpoint", "save_pretrained", "savefig", "dump"),
    *("to_csv", "to_parquet", "to_pickle", "tofile", "savetxt", "imwrite", "imsave", "copy2", "copyfile", "copytree"),
    "SummaryWriter",
)
MODED = ("open", "File", "ZipFile", "memmap", "open_memmap")  # which write in some modes
NETWORK = (
    *("load_state_dict_from_url", "download_url_to_file", "download_url", "download_and_extract_archive"),
    *("from_pretrained", "load_dataset", "hf_hub_download", "snapshot_download", "urlopen", "urlretrieve"),
    *("hub.load", "CometLogger"),
)
CALLS = (  # whose last names others have, too
    *("os.remove", "os.replace", "os.system", "shutil.copy", "shutil.move", "lmdb.open"),
)
RUNS = ("validate", "test", "predict")  # of a Trainer
LOGGERS = tuple(f"{name}Logger" for name in ("CSV", "TensorBoard", "Wandb", "MLFlow", "Comet", "Neptune"))
PLAIN = ("save_dir", "log_dir", "root_dir")  # attributes of a logger that open nothing
ISOLATED = """{what}
With a Lightning Trainer, loggers, checkpoints and early stopping are off, and nothing after fit runs; validation runs
a few times, and a checkpoint goes into a temporary folder. In a plain loop, nothing is switched off. What the script
does is real: files that it writes or removes, downloads, databases.{risks}"""
WITHOUT = "There is no terminal to ask in; add --yes to go on."


def agree(command: Sequence[str], what: str, *, yes: bool) -> None:
    """Say what is done with a script's ``{line}``, and what cannot be kept from happening.

    Raises:
        ConfigError: there is nobody to ask, and ``yes`` was not given.
        StrobeError: it was not agreed to.
    """
    lines = "".join(f"\n  {each}" for each in risks(command))
    named = f"\nIts files have:{lines}" if lines else ""
    print(ISOLATED.format(what=what.format(line=shlex.join(["python", *command])), risks=named), file=sys.stderr)
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(WITHOUT)
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise StrobeError("Not agreed to, so nothing was run.")


def risks(command: Sequence[str]) -> list[str]:
    """A line for each, such as ``train.py:31 torch.save``, of the script and what it imports from beside itself.

    What stands behind the ``fit`` of a Trainer cannot run: the script ends there. A file that cannot be read,
    or is no Python, has none: the run itself will tell.
    """
    script = file_of(command)
    root, waiting, found = Path() if command[0] == "-m" else script.parent, [script], list[str]()
    known = {script}
    for path in waiting:  # which grows
        try:
            tree = ast.parse(path.read_bytes())
            beside = _imported(tree, path, root)
            seen = sorted(_seen(tree, {one for one, _ in beside}))
        except (OSError, ValueError, SyntaxError, RecursionError):  # the last: of generated code
            continue
        name = path.relative_to(root) if path.is_relative_to(root) else path.name
        found += [f"{name}:{line} {what}" for line, what in seen]
        new = [file for file in dict.fromkeys(file for _, file in beside) if file not in known]
        waiting += new[: max(0, MOST_FILES - len(waiting))]
        known.update(new)
    return found[:MOST] + ([f"and {len(found) - MOST} more"] if len(found) > MOST else [])


def _imported(tree: ast.AST, path: Path, root: Path) -> list[tuple[str, Path]]:
    """What a file imports from below the script's folder: the first part of its name, and each file."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names, base = [one.name for one in node.names], root
        elif isinstance(node, ast.ImportFrom):
            start = f"{node.module}." if node.module else ""
            names = [node.module or "", *(f"{start}{one.name}" for one in node.names)]
            base = path.parents[node.level - 1] if 0 < node.level <= len(path.parents) else root
        else:
            continue
        for name in names:
            parts = name.split(".")
            for count in range(1, len(parts) + 1):
                place = base.joinpath(*parts[:count])
                files = (place.with_suffix(".py"), place / "__init__.py")
                found += [(parts[0], file) for file in files if name and file.is_file()]
    return found


def file_of(command: Sequence[str]) -> Path:
    """Where what follows ``python`` should lie: a script, or a module as it is found from the working folder."""
    if command[0] != "-m":
        return Path(command[0])
    path = Path(*command[1].split("."))
    return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


def _seen(tree: ast.AST, beside: Set[str]) -> Iterator[tuple[int, str]]:
    """Lines, and what stands there; ``beside`` it lie modules of the script's own."""
    trainers, loggers = _given(tree, _is_trainer), _given(tree, _is_logger)
    for node in _reached(tree, trainers):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
            for name in names:
                first = name.partition(".")[0]
                for what in (one for one, modules in OUTSIDE.items() if first in modules and first not in beside):
                    yield node.lineno, f"imports {name} ({what})"
        elif isinstance(node, ast.Call):
            if (more := _does(node, trainers)) is not None:
                yield node.lineno, f"{ast.unparse(node.func)}{more}"
        elif isinstance(node, ast.Attribute) and node.attr not in PLAIN and _is(node.value, _is_logger, loggers):
            yield node.lineno, f"{ast.unparse(node)} (a logger that the script opens itself)"


def _does(node: ast.Call, trainers: Set[str]) -> str | None:
    """What is to be added to the name of a call that does something outside; None for others."""
    name, given = ast.unparse(node.func), {one.arg: one.value for one in node.keywords}
    last = name.rpartition(".")[2]
    if _is_true(given.get("download")):
        return " (download=True)"
    if f".{name}".endswith(tuple(f".{one}" for one in NETWORK)):
        return " (network)"
    if isinstance(node.func, ast.Attribute) and last in RUNS and _is(node.func.value, _is_trainer, trainers):
        return " (it runs)"
    if last in WRITING or (name in CALLS and not _is_true(given.get("readonly"))) or (last in MODED and _writes(node)):
        return ""
    return None


def _reached(node: ast.AST, trainers: Set[str]) -> Iterator[ast.AST]:
    """All below a node, without the statements of a block that follow one that is sure to train."""
    yield node
    for _, field in ast.iter_fields(node):
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.AST):
                yield from _reached(child, trainers)
            if isinstance(child, ast.Expr | ast.Assign | ast.Return) and _fits(child.value, trainers):
                break


def _fits(value: ast.expr | None, trainers: Set[str]) -> bool:
    """Whether it is ``trainer.fit(...)``."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr != "fit":
        return False
    return _is(value.func.value, _is_trainer, trainers)


def _is(value: ast.expr, makes: Callable[[ast.expr], bool], names: Set[str]) -> bool:
    """Whether a value is made here, or is one of the names that are given such."""
    return makes(value) or (isinstance(value, ast.Name) and value.id in names)


def _given(tree: ast.AST, makes: Callable[[ast.expr], bool]) -> Set[str]:
    """Names that are given what ``makes`` one, and nothing else."""
    made = [(node.targets, node.value) for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    made += [([node.target], node.value) for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and node.value]
    kept = {id(target) for targets, value in made for target in targets if makes(value)}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) in kept}
    bound = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    given = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return names - {node.id for node in bound if id(node) not in kept} - given


def _is_trainer(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "Trainer"


def _is_logger(value: ast.expr) -> bool:
    """Whether it makes one of Lightning's."""
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in LOGGERS


def _is_true(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def _writes(call: ast.Call) -> bool:
    method = isinstance(call.func, ast.Attribute) and call.func.attr == "open"  # of a path, or of a module
    given = (*call.args[not method :], *(named.value for named in call.keywords))
    modes = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    modes = [mode for mode in modes if 0 < len(mode) <= 3 and set(mode) <= set("rwaxbtc+")]
    if ast.unparse(call.func).rpartition(".")[2] == "memmap" and not modes:  # it opens to read and to write
        return True
    return any(set(mode) & set("wax+") for mode in modes)
