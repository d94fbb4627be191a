"""A measured profile as `fit` and `evaluate` ask for it."""

from pathlib import Path

from ops.cli.boundary import InputError
from ops.measure.prompts import read_ids
from router.profile import Profile, ProfileError


def profiled(folder: Path, ids: Path | None, flag: str = "--profile-ids") -> Profile:
    """The profile, or of it the prompts that a file of ids names; raises ProfileError, and
    InputError naming the file of ids and the flag that it was given by."""
    profile = Profile.load(folder)
    if ids is None:
        return profile
    try:
        return profile.only(read_ids(ids))
    except ProfileError as error:
        raise InputError(f"{flag}: {ids}: {error}") from error
