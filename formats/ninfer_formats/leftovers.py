"""Undo or finish what a publication left behind: one rule for errors, interrupts and kill -9."""

from __future__ import annotations

import os
from pathlib import Path

from ninfer_formats.errors import NinferError
from ninfer_formats.placement import move_exclusively, sync_folder
from ninfer_formats.work_folder import (
    Plan,
    WorkFolder,
    file_facts,
    find_work_folders,
    is_regular_file,
)
from ninfer_formats.writer_lock import take_lock


def clean_leftovers(entry_path: str | os.PathLike[str]) -> list[WorkFolder]:
    """Clean what killed writers of `entry_path` left; return the folders of living writers.

    Only this user's `.<entry>.ninfer-<16 hex>` folders that hold a lock nobody has are touched;
    see `settle` for what happens to each. Raises NinferError when an older file set that was set
    aside cannot be put back, and OSError when the folder cannot be read or changed.
    """
    target = Path(entry_path)
    parent = Path(os.path.realpath(target.parent))
    living = []
    for folder in find_work_folders(parent, target.name):
        try:
            lock = take_lock(folder)
        except BlockingIOError:
            living.append(folder)
            continue
        if lock is not None:
            _settle_and_release(folder, lock)
    return living


def _settle_and_release(folder: WorkFolder, lock: int) -> None:
    try:
        # The lock of a folder that its writer has just removed proves nothing.
        if is_regular_file(folder.lock):
            settle(folder)
    finally:
        os.close(lock)


def settle(folder: WorkFolder) -> bool:
    """Remove a work folder whose lock the caller holds; return whether its set was published.

    Published: the new set stays and files set aside are dropped. Otherwise the final names are
    put back as they were. Every step can be interrupted and repeated.
    """
    published = withdraw(folder)
    folder.remove()
    return published


def withdraw(folder: WorkFolder) -> bool:
    """Put the final names back as they were unless the set was published; return whether it was.

    The written files stay in the folder, whose lock the caller holds.
    """
    plan = folder.read_plan()
    published = plan is not None and _entry_was_published(folder)
    if plan is not None and not published:
        _withdraw_parts(folder, plan)
    if not published:
        _restore_backups(folder)
        sync_folder(folder.path.parent)
    return published


def _entry_was_published(folder: WorkFolder) -> bool:
    # Publishing the entry renames it away or gives it a second name. The second name may have
    # been moved since, so the target path itself is no evidence.
    try:
        return folder.new(folder.entry).lstat().st_nlink > 1
    except FileNotFoundError:
        return True


def _withdraw_parts(folder: WorkFolder, plan: Plan) -> None:
    for name in plan.parts:
        if _is_planned_file(folder, name, plan.files[name]):
            folder.final(name).unlink()


def _is_planned_file(folder: WorkFolder, name: str, facts: tuple[int, int, int]) -> bool:
    try:
        final = file_facts(folder.final(name))
    except FileNotFoundError:
        return False
    try:
        return final[0] == file_facts(folder.new(name))[0]
    except FileNotFoundError:
        # Moved, not linked; the inode alone could belong to a newer file by now.
        return final == facts


def _restore_backups(folder: WorkFolder) -> None:
    if os.path.lexists(folder.final(folder.entry)):
        return
    for name in folder.backups():
        try:
            move_exclusively(folder.old(name), folder.final(name))
        except FileExistsError as error:
            raise NinferError(
                "an interrupted run set an older file aside, and its name is taken now",
                path=folder.final(name),
                remedy=f"move that file away and run again, or remove {folder.path}",
            ) from error
