"""DType: element types of tensors."""
from __future__ import annotations

import enum

from . import raw
from .errors import InvalidArgumentError


class DType(enum.IntEnum):
    """The values of tsr_dtype. The block types are those of GGUF, bit for bit."""

    f32 = 0
    f64 = 1
    f16 = 2
    bf16 = 3
    i32 = 4
    i64 = 5
    i8 = 6
    u8 = 7
    q8_0 = 8
    q4_0 = 9
    e4m3 = 10
    e5m2 = 11
    q4_1 = 12
    q5_0 = 13
    q5_1 = 14
    q2_k = 15
    q3_k = 16
    q4_k = 17
    q5_k = 18
    q6_k = 19
    iq1_s = 20
    iq1_m = 21
    iq2_xxs = 22
    iq2_xs = 23
    iq2_s = 24
    iq3_xxs = 25
    iq3_s = 26
    iq4_nl = 27
    iq4_xs = 28
    tq1_0 = 29
    tq2_0 = 30
    mxfp4 = 31
    nvfp4 = 32
    q1_0 = 33
    q2_0 = 34
    nf4 = 35

    def __str__(self) -> str:
        return self.name


def dtype_of(name: str | int) -> DType:
    """DType.f32 of "f32", or of its number."""
    try:
        return DType[name] if isinstance(name, str) else DType(name)
    except (KeyError, ValueError):
        raise InvalidArgumentError(f"dtype: found {name!r}, wanted one of {', '.join(DType.__members__)}") from None


def dtype_name(dtype: int) -> str:
    """As C names it; "unknown" for other numbers."""
    return raw.tsr_dtype_name(dtype)
