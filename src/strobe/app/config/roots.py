"""Checks of the data's folder that need neither torch nor its files' content."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from strobe.app.config.schema import PUBLISHED
from strobe.app.storage.address import check_slashes, is_remote
from strobe.app.storage.local import LocalFolder
from strobe.errors import ConfigError, DataError
from strobe.overrides import key_of

if TYPE_CHECKING:
    from strobe.app.storage.folder import RemoteFolder

PHOTOS = (".jpg", ".jpeg", ".png")
SPLITS = ("train", "val")  # folders of which either holds class folders


def check_root(cfg: DictConfig) -> None:
    """The data must exist, unless it is generated or downloaded; each class of photos in folders needs one."""
    choice, root = HydraConfig.get().runtime.choices["data"], Path(cfg.data.root)
    if is_remote(cfg.data.root):
        return
    check_slashes("data.root", cfg.data.root)
    overridden = {key_of(override) for override in HydraConfig.get().overrides.task}
    generated = root.is_dir() and {path.name for path in root.iterdir()} <= {"tiles"}
    if choice == "sample" and "data.root" in overridden and "data" not in overridden and not generated:
        raise ConfigError(
            f"data.root={root} would get the generated tiles of data=sample, the default; give data=image_folder, "
            "eurosat or cifar10 for the images there, or data=sample to generate tiles there"
        )
    if choice == "image_folder" and root.is_dir():
        _check_photos(LocalFolder(root))
    if choice == "sample" or cfg.data.get("download") or (root.is_dir() and any(root.iterdir())):
        return
    title, url, size = PUBLISHED.get(choice, ("", "", ""))
    where = (
        f"data.download=true downloads {title} ({size}, from {url})"
        if url
        else "give the folder that holds the class folders with data.root=FOLDER"
    )
    what = "is empty" if root.is_dir() else "is not a folder"
    raise ConfigError(f"data.root={root} {what}; {where}, or train on generated tiles with data=sample")


def _check_photos(root: LocalFolder) -> None:
    """Say at once what loading would say of class folders after its imports; of a set that is split, train and val."""
    if "train" in (names := set(root.folders())) and "val" not in names:
        return  # which may be a class, or a mistake that loading knows
    for folder in (root / name for name in SPLITS) if set(SPLITS) <= names else (root,):
        classes = {legible(name): (folder / name).may_hold(PHOTOS) for name in folder.folders()}
        require_classes(folder, classes, PHOTOS, "photo")


def require_classes(
    folder: "LocalFolder | RemoteFolder", classes: Mapping[str, object], suffixes: tuple[str, ...], kind: str
) -> None:
    """Raise a :class:`DataError` for fewer than two classes, or one with no file, whose value is false.

    ``kind``: tile or photo.
    """
    if len(classes) < 2:
        what = f"one class, {next(iter(classes))}" if classes else "no class folders"
        raise DataError(f"{folder} holds {what}; put the {kind}s of at least two classes into a folder for each")
    if empty := next((name for name, files in classes.items() if not files), None):
        raise DataError(f"{folder / empty} holds no {', '.join(suffixes)} file; add {kind}s or remove the folder")


def legible(name: str) -> str:
    """A folder's name with those bytes escaped that are not UTF-8."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")
