"""Functions that a config names."""

import pkgutil
from collections.abc import Callable
from typing import Any

from envhub.errors import ConfigError


def installed(target: str, *, what: str) -> Callable[..., Any]:
    """The function named "package.module:function". Raises ConfigError, which says `what` it should have been."""
    try:
        found = pkgutil.resolve_name(target)
    except (Exception, SystemExit) as error:  # foreign code enters here
        raise ConfigError(
            f"{what} {target!r} does not import: {type(error).__name__}: {error}", mend="name package.module:function"
        ) from error
    if not callable(found):
        raise ConfigError(f"{what} {target!r} is no function", mend="name package.module:function")
    function: Callable[..., Any] = found
    return function
