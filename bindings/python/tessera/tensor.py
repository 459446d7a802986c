"""Tensor: a whole tensor in host memory, row-major, as a buffer of Python."""
from __future__ import annotations

import array
import math
import struct
from typing import Any, Iterable, Sequence

from . import arguments, raw
from .dtype import DType, dtype_of
from .errors import InvalidArgumentError
from .handle import Handle, use

# How a buffer has the elements: its format, and what DLPack calls them (code, bits). bf16 are the bits of each.
_LAYOUT = {DType.f32: ("f", 2, 32), DType.f64: ("d", 2, 64), DType.f16: ("e", 2, 16), DType.bf16: ("H", 4, 16),
           DType.i32: ("i", 0, 32), DType.i64: ("q", 0, 64), DType.i8: ("b", 0, 8), DType.u8: ("B", 1, 8),
           DType.e4m3: ("B", 10, 8), DType.e5m2: ("B", 12, 8)}
_OF_FORMAT = {"f": DType.f32, "d": DType.f64, "e": DType.f16, "i": DType.i32, "q": DType.i64, "l": DType.i64,
              "b": DType.i8, "B": DType.u8}


class Tensor(Handle, raw.Exporter):
    """`Tensor(x)` is a view of what has a buffer or `__dlpack__`: no copy. x must stay as it is until nothing of the
    library uses it; then the reference to it is dropped. `Tensor.zeros` owns its memory.

    It is a buffer itself: `memoryview(tensor)`, `numpy.asarray(tensor)`, `torch.from_dlpack(tensor)` see its memory
    without a copy, and keep it. bf16 come as uint16, of block types the bytes."""

    _free = raw.tsr_tensor_free

    def __init__(self, values: Any, dtype: str | int | None = None, shape: Sequence[int] | None = None):
        wanted = None if dtype is None else dtype_of(dtype)
        try:
            view = memoryview(values)
        except TypeError:
            view = None
        if view is None and hasattr(values, "__dlpack__") and wanted is None and shape is None:
            try:
                self._pointer = self._made(raw.tsr_raw_tensor_from_dlpack(_capsule(values)))
            except BufferError as error:
                raise InvalidArgumentError(f"values: {error}") from error
            return
        if view is None:
            raise InvalidArgumentError(f"values: found {type(values).__name__}, wanted a buffer such as an array, or "
                                       "Tensor.of(numbers, dtype)")
        if not view.c_contiguous:
            raise InvalidArgumentError("values: found a buffer with gaps or another order, wanted C-contiguous")
        wanted, extents = _described(view, wanted, shape)
        self._pointer = self._made(raw.tsr_raw_tensor_borrow(wanted, extents, values))

    @classmethod
    def zeros(cls, dtype: str | int, shape: Iterable[int] = ()) -> Tensor:
        """Owned memory, which can be written: `memoryview(tensor)`."""
        return cls._own(raw.tsr_tensor_new(dtype_of(dtype), arguments.dims("shape", list(shape))))

    @classmethod
    def of(cls, numbers: Any, dtype: str | int) -> Tensor:
        """A copy of a number, or of numbers in lists of lists."""
        shape, flat = _flattened(numbers)
        tensor = cls.zeros(dtype, shape)
        layout = _LAYOUT.get(tensor.dtype)
        if layout is None or tensor.dtype in (DType.bf16, DType.e4m3, DType.e5m2):
            raise InvalidArgumentError(f"dtype: found {tensor.dtype.name}, wanted a type that Python has: f32, f64, f16, "
                                       "i32, i64, i8 or u8")
        try:
            memoryview(tensor).cast("B")[:] = struct.pack(f"{len(flat)}{layout[0]}", *flat)
        except (struct.error, TypeError, OverflowError) as error:
            raise InvalidArgumentError(f"numbers: {error}; wanted {tensor.dtype.name}") from error
        return tensor

    @property
    def dtype(self) -> DType:
        with self._pointer as c:
            return DType(raw.tsr_tensor_dtype(c))

    @property
    def shape(self) -> tuple[int, ...]:
        with self._pointer as c:
            return tuple(raw.tsr_raw_tensor_dims(c, i) for i in range(raw.tsr_tensor_rank(c)))

    @property
    def nbytes(self) -> int:
        with self._pointer as c:
            return raw.tsr_tensor_bytes(c)

    @property
    def name(self) -> str:
        """As read or fetched; "" for others."""
        with self._pointer as c:
            return raw.tsr_tensor_name(c)

    @property
    def readonly(self) -> bool:
        """True for borrowed tensors and those of a file."""
        with self._pointer as c:
            return raw.tsr_tensor_writable(c) == 0

    def _block(self) -> raw.Block:
        owner = self._pointer.owner
        with self._pointer as c:
            return self._block_of(c, owner)

    def _block_of(self, c: int, owner: raw.Owner) -> raw.Block:
        size, writable = raw.tsr_tensor_bytes(c), raw.tsr_tensor_writable(c)
        code, _, bits = _LAYOUT.get(raw.tsr_tensor_dtype(c), ("B", 0, 0))
        extents = self.shape if bits else (size,)
        return raw.tsr_raw_block(writable or raw.tsr_tensor_data(c), size, int(not writable), code,
                                 bits // 8 if bits else 1, array.array("q", extents), owner)

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """A DLPack capsule. Consumers of its old form cannot know that memory is read-only: they get a copy."""
        dtype = self.dtype
        if dtype not in _LAYOUT:
            raise BufferError(f"found {dtype.name}, wanted a type that DLPack has; bytes(tensor) are the blocks")
        if dl_device is not None and tuple(dl_device) != (1, 0):
            raise BufferError(f"found the device {tuple(dl_device)}, wanted (1, 0): host memory")
        versioned = max_version is not None and max_version[0] >= 1
        source, copied = self, bool(copy)
        if copied or self.readonly and not versioned:
            if copy is False:
                raise BufferError("the tensor is read-only, which DLPack before 1.0 cannot say; wanted copy=True or None")
            source, copied = Tensor.zeros(dtype, self.shape), True
            memoryview(source).cast("B")[:] = memoryview(self).cast("B")
        _, code, bits = _LAYOUT[dtype]
        return raw.tsr_raw_dlpack(source._block(), code, bits, int(versioned), int(copied))

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def tolist(self) -> Any:
        """A number, or numbers in lists of lists; of bf16 their values."""
        if self.dtype not in _LAYOUT or self.dtype in (DType.e4m3, DType.e5m2):
            raise InvalidArgumentError(f"found {self.dtype.name}, wanted a type that Python has; bytes(tensor) are the blocks")
        data, shape = bytes(memoryview(self).cast("B")) if self.nbytes else b"", self.shape
        if self.dtype == DType.bf16:
            data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
        code = "f" if self.dtype == DType.bf16 else _LAYOUT[self.dtype][0]
        flat = list(struct.unpack(f"{math.prod(shape)}{code}", data))
        for extent in reversed(shape[1:]):
            flat = [flat[i:i + extent] for i in range(0, len(flat), extent)] if extent else [[]] * math.prod(shape[:1])
        return flat if shape else flat[0]

    def numpy(self) -> Any:
        """A NumPy array over this memory; needs NumPy."""
        import numpy
        return numpy.asarray(self)

    def __repr__(self) -> str:
        return "Tensor(closed)" if self.closed else f"Tensor({self.dtype.name}, {list(self.shape)})"


def _capsule(values: Any) -> Any:
    device = values.__dlpack_device__() if hasattr(values, "__dlpack_device__") else (1, 0)
    if device[0] not in (1, 3):
        raise InvalidArgumentError(f"values: found a tensor on DLPack's device {tuple(device)}, wanted one in host memory")
    try:
        return values.__dlpack__(max_version=(1, 0))
    except TypeError:
        return values.__dlpack__()


def _described(view: memoryview, wanted: DType | None, shape: Sequence[int] | None) -> tuple[DType, array.array[int]]:
    """Type and extents of a tensor over a buffer."""
    code = view.format.lstrip("@=<")
    found = _OF_FORMAT.get(code)
    dtype = found if wanted is None else wanted
    if dtype is None:
        raise InvalidArgumentError(f"values: found a buffer of {arguments.describe(view)}, wanted float32, float64, float16, "
                                   "int32, int64, int8 or uint8, or a dtype that says what its bytes are")
    is_bytes, is_bits = code in ("B", "c"), dtype == DType.bf16 and code in ("H", "h")
    if dtype != found and not is_bytes and not is_bits:
        raise InvalidArgumentError(f"values: found a buffer of {arguments.describe(view)}, wanted {dtype.name}")
    if shape is None and dtype != found and is_bytes:
        raise InvalidArgumentError(f"shape: found none, wanted the extents of {view.nbytes} bytes of {dtype.name}")
    return dtype, arguments.dims("shape", list(view.shape or () if shape is None else shape))


def _flattened(numbers: Any) -> tuple[list[int], list[Any]]:
    if not isinstance(numbers, (list, tuple)):
        return [], [numbers]
    parts = [_flattened(each) for each in numbers]
    shapes = {tuple(shape) for shape, _ in parts}
    if len(shapes) > 1:
        raise InvalidArgumentError(f"numbers: found rows of extents {sorted(shapes)}, wanted the same in each")
    return [len(parts), *(shapes.pop() if shapes else ())], [number for _, flat in parts for number in flat]


def as_tensor(name: str, value: Any) -> Tensor:
    """A tensor as it is, and a view of anything else that has a buffer."""
    if isinstance(value, Tensor):
        use(value, Tensor, name)
        return value
    try:
        return Tensor(value)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{name}: {error}") from error
