"""Arrays over pipes and wires: the same bits at the other end, and hostile bytes are no arrays."""

import contextlib

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from envhub.envs.runtime.arrays import checked_array, in_json, pack_array, unpack_array
from envhub.envs.runtime.wire import pack_frame, unpack_body

KINDS = hnp.boolean_dtypes() | hnp.integer_dtypes() | hnp.unsigned_integer_dtypes() | hnp.floating_dtypes()


@given(hnp.arrays(KINDS, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)))
def test_an_array_is_the_same_at_the_other_end(array: np.ndarray) -> None:
    (found,) = unpack_body(pack_frame([array])[4:])
    assert (found.shape, found.dtype) == (array.shape, array.dtype.newbyteorder("<"))
    assert found.tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()
    (passed,) = unpack_body(pack_frame([array])[4:], arrays=False)
    assert pack_frame([passed]) == pack_frame([array])


@pytest.mark.parametrize("value", [np.array(["x"]), np.array([1j]), np.array([object()]), np.zeros((1,) * 17), {1}])
def test_what_is_no_plain_array_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        pack_array(value)


def head(dtype: object, shape: object) -> bytes:
    return bytes(msgpack.packb([dtype, shape]))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        head("<f8", [2]) + b"x" * 15,
        head("<f8", [2]) + b"x" * 17,
        head("|O", [1]) + b"x" * 8,
        head("<f8", [-1]),
        head("<f8", [2**39, 2**39, 0]),
        head("<f8", ["1"]) + b"x" * 8,
        head("<f8", [True]) + b"x" * 8,
        head("<f8", 1) + b"x" * 8,
        head("<f8" * 10, [1]) + b"x" * 8,
        head("<f8", [1] * 17) + b"x" * 8,
        msgpack.packb([1, 2, 3]),
    ],
)
def test_hostile_bytes_are_no_array(data: bytes) -> None:
    for read in (unpack_array, checked_array):
        with pytest.raises(ValueError, match=r"."):
            read(1, data)
    with pytest.raises(ValueError, match="unknown"):
        unpack_array(2, data)


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(unpack_array(1, data), np.ndarray)


def test_json_holds_arrays_and_bytes() -> None:
    image = np.array([[[1, 2, 255]]], np.uint8)
    packed = pack_array(image)
    wanted = {"dtype": "|u1", "shape": [1, 1, 3], "base64": "AQL/"}
    assert in_json({"a": [packed, (image,)], "b": b"\0", 3: None, "c": 1.5}) == {
        "a": [wanted, [wanted]],
        "b": {"base64": "AA=="},
        "3": None,
        "c": 1.5,
    }
    assert pack_array(np.float32(0.5)) == 0.5
