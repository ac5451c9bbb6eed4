"""What the file of a script can be seen to do outside its process: write files, use the network or a database."""

import ast
import shlex
import sys
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from strobe.errors import ConfigError, StrobeError

MOST = 8  # that are named
OUTSIDE = {  # modules whose import tells
    "network": (
        *("requests", "httpx", "aiohttp", "urllib", "socket", "boto3", "paramiko", "huggingface_hub"),
        *("urllib3", "fsspec", "s3fs", "gcsfs", "google", "datasets"),
        *("wandb", "mlflow", "neptune", "comet_ml", "clearml"),
    ),
    "a database": ("sqlite3", "psycopg", "psycopg2", "pymysql", "pymongo", "redis", "sqlalchemy", "duckdb"),
    "other processes": ("subprocess",),
}
WRITING = (  # functions and methods by their last name
    *("write_text", "write_bytes", "mkdir", "makedirs", "touch", "unlink", "rmtree", "rmdir", "rename", "symlink_to"),
    *("save", "savez", "save_file", "save_checkpoint", "save_pretrained", "savefig", "dump"),
    *("to_csv", "to_parquet", "to_pickle", "tofile", "savetxt", "imwrite", "imsave", "copy2", "copyfile", "copytree"),
)
CALLS = ("os.remove", "os.replace", "os.system", "shutil.copy", "shutil.move")  # whose last names others have, too
ISOLATED = """{what}
Loggers, checkpoints and early stopping are off, and nothing after fit is run. Its validation runs a few times, and a
checkpoint goes into a temporary folder. The script's own actions are real: files that it writes or removes,
downloads, databases.{risks}"""
WITHOUT = "There is no terminal to ask in; add --yes to go on."


def agree(command: Sequence[str], what: str, *, yes: bool) -> None:
    """Say what is done with a script's ``{line}``, and what cannot be kept from happening.

    Raises:
        ConfigError: there is nobody to ask, and ``yes`` was not given.
        StrobeError: it was not agreed to.
    """
    found = "".join(f"\n  {each}" for each in risks(command))
    named = f"\nIts file has:{found}" if found else ""
    print(ISOLATED.format(what=what.format(line=shlex.join(["python", *command])), risks=named), file=sys.stderr)
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(WITHOUT)
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise StrobeError("Not agreed to, so nothing was run.")


def risks(command: Sequence[str]) -> list[str]:
    """A line for each, such as ``train.py:31 torch.save``, of the script itself and not of what it imports.

    What stands behind the ``fit`` of a Trainer cannot run: the script ends there. A file that cannot be read,
    or is no Python, has none: the run itself will tell.
    """
    path = file_of(command)
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError):
        return []
    found = [f"{path.name}:{line} {what}" for line, what in sorted(_seen(tree))]
    return found[:MOST] + ([f"and {len(found) - MOST} more"] if len(found) > MOST else [])


def file_of(command: Sequence[str]) -> Path:
    """Where what follows ``python`` should lie: a script, or a module as it is found from the working folder."""
    if command[0] != "-m":
        return Path(command[0])
    path = Path(*command[1].split("."))
    return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


def _seen(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in _reached(tree, _trainers(tree)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
            for name in names:
                for what, modules in OUTSIDE.items():
                    if name.partition(".")[0] in modules:
                        yield node.lineno, f"imports {name} ({what})"
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            last = name.rpartition(".")[2]
            if last in WRITING or name in CALLS or (last == "open" and _writes(node)):
                yield node.lineno, name


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
    owner = value.func.value
    return _is_trainer(owner) or (isinstance(owner, ast.Name) and owner.id in trainers)


def _trainers(tree: ast.AST) -> Set[str]:
    """Names that are given a Trainer, and nothing else."""
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    names = {
        target.id for one in made for target in one.targets if isinstance(target, ast.Name) if _is_trainer(one.value)
    }
    kept = {id(target) for one in made if _is_trainer(one.value) for target in one.targets}
    bound = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    given = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return names - {node.id for node in bound if id(node) not in kept} - given


def _is_trainer(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "Trainer"


def _writes(call: ast.Call) -> bool:
    given = call.args[isinstance(call.func, ast.Name) :]  # without the path of the function, which the method has not
    modes = [one.value for one in (*given, *(named.value for named in call.keywords)) if isinstance(one, ast.Constant)]
    return any(isinstance(mode, str) and len(mode) <= 3 and bool(set(mode) & set("wax+")) for mode in modes)
