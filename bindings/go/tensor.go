package tessera

import (
	"io"
	"strconv"

	"tessera.dev/tessera/raw"
)

// DType is the element type of a tensor; the values are those of tsr_dtype.
type DType int32

const (
	F32    DType = 0
	F64    DType = 1
	F16    DType = 2
	BF16   DType = 3
	I32    DType = 4
	I64    DType = 5
	I8     DType = 6
	U8     DType = 7
	Q80    DType = 8
	Q40    DType = 9
	E4M3   DType = 10
	E5M2   DType = 11
	Q41    DType = 12
	Q50    DType = 13
	Q51    DType = 14
	Q2K    DType = 15
	Q3K    DType = 16
	Q4K    DType = 17
	Q5K    DType = 18
	Q6K    DType = 19
	IQ1S   DType = 20
	IQ1M   DType = 21
	IQ2XXS DType = 22
	IQ2XS  DType = 23
	IQ2S   DType = 24
	IQ3XXS DType = 25
	IQ3S   DType = 26
	IQ4NL  DType = 27
	IQ4XS  DType = 28
	TQ10   DType = 29
	TQ20   DType = 30
	MXFP4  DType = 31
	NVFP4  DType = 32
	Q10    DType = 33
	Q20    DType = 34
	NF4    DType = 35
)

// String is the type's name: "f32".
func (d DType) String() string { return raw.Tsr_dtype_name(int(d)) }

// Tensor is a whole tensor in host memory, row-major and contiguous. It is an io.ReaderAt and io.WriterAt of its bytes;
// TensorOf, Values and SetValues speak of its elements.
type Tensor handle

func newTensor(h *handle, err error) (*Tensor, error) { return (*Tensor)(h), err }

// NewTensor makes a tensor of zeros; without dims a scalar.
func NewTensor(dtype DType, dims ...int64) (*Tensor, error) {
	return newTensor(hold(raw.Tsr_tensor_free, func(out *uintptr) uintptr {
		return raw.Tsr_tensor_new(int(dtype), dims, out)
	}))
}

// Close frees it; see the package.
func (t *Tensor) Close() { (*handle)(t).close() }

// DType is the element type; F32 for a tensor that is closed.
func (t *Tensor) DType() DType {
	c, done := (*handle)(t).use()
	defer done()
	return DType(raw.Tsr_tensor_dtype(c))
}

// Dims are the extents, the outermost first; none for a scalar.
func (t *Tensor) Dims() []int64 {
	c, done := (*handle)(t).use()
	defer done()
	dims := make([]int64, raw.Tsr_tensor_rank(c))
	for i := range dims {
		dims[i] = raw.Tsr_raw_tensor_dims(c, i)
	}
	return dims
}

// Size is the number of bytes.
func (t *Tensor) Size() int64 {
	c, done := (*handle)(t).use()
	defer done()
	return raw.Tsr_tensor_bytes(c)
}

// Name is the name that the tensor was read or fetched by; "" for others.
func (t *Tensor) Name() string {
	c, done := (*handle)(t).use()
	defer done()
	return raw.Tsr_tensor_name(c)
}

// Writable tells whether values can be set: not in borrowed tensors and views of a model.
func (t *Tensor) Writable() bool {
	c, done := (*handle)(t).use()
	defer done()
	return raw.Tsr_tensor_writable(c) != 0
}

// Address is where the data lie, for other C code, as long as the tensor is not closed; 0 for no tensor.
func (t *Tensor) Address() uintptr {
	c, done := (*handle)(t).use()
	defer done()
	return raw.Tsr_tensor_data(c)
}

// String is the type as graphs write it: "f32[2, 3]".
func (t *Tensor) String() string {
	text := t.DType().String() + "["
	for i, dim := range t.Dims() {
		if i > 0 {
			text += ", "
		}
		text += strconv.FormatInt(dim, 10)
	}
	return text + "]"
}

// ReadAt copies bytes of the tensor, as an io.ReaderAt.
func (t *Tensor) ReadAt(p []byte, offset int64) (int, error) {
	c, done := (*handle)(t).use()
	defer done()
	if err := checkBytes(c, offset); err != nil {
		return 0, err
	}
	count := int(raw.Tsr_raw_tensor_read(c, offset, p))
	if count < len(p) {
		return count, io.EOF
	}
	return count, nil
}

// WriteAt copies bytes into the tensor, as an io.WriterAt: all of p or none.
func (t *Tensor) WriteAt(p []byte, offset int64) (int, error) {
	c, done := (*handle)(t).use()
	defer done()
	if err := checkBytes(c, offset); err != nil {
		return 0, err
	}
	size := raw.Tsr_tensor_bytes(c)
	if offset > size || int64(len(p)) > size-offset {
		return 0, refuse("found %d bytes for offset %d of a tensor, wanted at most %d in all", len(p), offset, size)
	}
	return writeBytes(c, p, offset)
}

// writeBytes copies bytes that the tensor has room for.
func writeBytes(c uintptr, p []byte, offset int64) (int, error) {
	if len(p) > 0 && raw.Tsr_raw_tensor_write(c, offset, p) == 0 {
		return 0, &Error{Code: FailedPrecondition, Message: "the tensor cannot be written: it is borrowed, or a view; copy its values into a new one"}
	}
	return len(p), nil
}

func checkBytes(c uintptr, offset int64) error {
	if c == 0 {
		return refuse("tensor is nil or closed")
	}
	if offset < 0 {
		return refuse("found the offset %d in a tensor, wanted at least 0", offset)
	}
	return nil
}
