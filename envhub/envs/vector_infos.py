"""Many environments' infos as one, in Gymnasium's form: `infos[key]` holds an array, `infos["_" + key]` who has a value."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class _Nothing:
    """What an environment without a key says for it."""


_NOTHING = _Nothing()


def merge_infos(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One dict of arrays from a dict each, as Gymnasium's vectors give it: `key` holds the values, `_key` says who has one."""
    merged: dict[str, Any] = {}
    for key in dict.fromkeys(itertools.chain.from_iterable(infos)):
        values = [info.get(key, _NOTHING) for info in infos]
        kinds = set(map(type, values))
        places: list[int] | slice = slice(None)
        if _Nothing in kinds:
            kinds.discard(_Nothing)
            places = [place for place, value in enumerate(values) if value is not _NOTHING]
            values = [values[place] for place in places]
        mask = np.zeros(len(infos), np.bool_)
        mask[places] = True
        merged[key], merged[f"_{key}"] = _column(key, kinds, places, values, len(infos)), mask
    return merged


def _column(key: str, kinds: set[type], places: list[int] | slice, values: list[Any], length: int) -> Any:
    kind = kinds.pop() if len(kinds) == 1 else object
    if kind is str or key == "final_obs":
        array = np.empty(length, object)
        array[places] = values
        return array
    if kind is dict:
        rows = np.full(length, None, object)
        _fill(rows, places, values)
        return merge_infos([row or {} for row in rows])
    if kind is np.ndarray and len({(value.shape, value.dtype) for value in values}) == 1:
        array = np.zeros((length, *values[0].shape), values[0].dtype)
        array[places] = np.stack(values)
        return array
    if kind in (int, float, bool) or issubclass(kind, np.number):
        array = np.zeros(length, kind)
        array[places] = values
        return array
    array = np.full(length, None, object)
    _fill(array, places, values)
    return array


def _fill(array: NDArray[Any], places: list[int] | slice, values: list[Any]) -> None:
    """Put values that may be sequences themselves into an array of objects."""
    for place, value in zip(np.arange(len(array))[places].tolist(), values, strict=True):
        array[place] = value


class Infos(dict[str, Any]):
    """The merged infos, put together when first looked at: most loops never look, and merging costs as much as a cheap step.

    Environments give a new dict at every step, which `envhub check` makes sure of.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep the environments' own infos until then."""
        super().__init__()
        self._rows: Sequence[Mapping[str, Any]] | None = rows

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)

    def _fill(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            dict.update(self, merge_infos(rows))


def _looking(name: str) -> Callable[..., Any]:
    plain = getattr(dict, name)

    def look(self: Infos, *args: Any, **kwargs: Any) -> Any:
        self._fill()
        return plain(self, *args, **kwargs)

    look.__name__, look.__doc__ = name, plain.__doc__
    return look


for _name in [
    *("__contains__", "__delitem__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__", "__ne__", "__or__", "__repr__"),
    *("__reversed__", "__ror__", "__setitem__", "clear", "copy", "get", "items", "keys", "pop", "popitem", "setdefault"),
    *("update", "values"),
]:
    setattr(Infos, _name, _looking(_name))
