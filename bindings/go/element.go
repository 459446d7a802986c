package tessera

import (
	"unsafe"

	"tessera.dev/tessera/raw"
)

// Element is a type of Go that tensors hold: uint16 stands for the bits of f16 and bf16.
type Element interface {
	float32 | float64 | int32 | int64 | int8 | uint8 | uint16
}

// TensorOf makes a tensor that holds a copy of values, whose type says its own; without dims a vector.
func TensorOf[T Element](values []T, dims ...int64) (*Tensor, error) {
	var dtype DType
	switch any(T(0)).(type) {
	case float32:
		dtype = F32
	case float64:
		dtype = F64
	case int32:
		dtype = I32
	case int64:
		dtype = I64
	case int8:
		dtype = I8
	case uint8:
		dtype = U8
	default:
		return nil, refuse("uint16 may be f16 or bf16: make the tensor by NewTensor and fill it by SetValues")
	}
	if len(dims) == 0 {
		dims = []int64{int64(len(values))}
	}
	t, err := NewTensor(dtype, dims...)
	if err != nil {
		return nil, err
	}
	if err := SetValues(t, values); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// ScalarOf makes a tensor without dims.
func ScalarOf[T Element](value T) (*Tensor, error) {
	t, err := TensorOf([]T{value}, 1)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	scalar, err := NewTensor(t.DType())
	if err != nil {
		return nil, err
	}
	if err := SetValues(scalar, []T{value}); err != nil {
		scalar.Close()
		return nil, err
	}
	return scalar, nil
}

// Values copies the elements of a tensor, whose type must be T.
func Values[T Element](t *Tensor) ([]T, error) {
	c, done := (*handle)(t).use()
	defer done()
	if err := checkElement[T](c); err != nil {
		return nil, err
	}
	values := make([]T, raw.Tsr_tensor_bytes(c)/int64(unsafe.Sizeof(T(0))))
	raw.Tsr_raw_tensor_read(c, 0, bytesOf(values))
	return values, nil
}

// SetValues copies all elements into a tensor, whose type must be T.
func SetValues[T Element](t *Tensor, values []T) error {
	c, done := (*handle)(t).use()
	defer done()
	if err := checkElement[T](c); err != nil {
		return err
	}
	if wanted := raw.Tsr_tensor_bytes(c) / int64(unsafe.Sizeof(T(0))); int64(len(values)) != wanted {
		return refuse("found %d values for a tensor of %d", len(values), wanted)
	}
	_, err := writeBytes(c, bytesOf(values), 0)
	return err
}

// checkElement refuses a tensor whose elements are not T.
func checkElement[T Element](c uintptr) error {
	if err := checkBytes(c, 0); err != nil {
		return err
	}
	found := DType(raw.Tsr_tensor_dtype(c))
	holds, wanted := false, ""
	switch any(T(0)).(type) {
	case float32:
		holds, wanted = found == F32, "float32"
	case float64:
		holds, wanted = found == F64, "float64"
	case int32:
		holds, wanted = found == I32, "int32"
	case int64:
		holds, wanted = found == I64, "int64"
	case int8:
		holds, wanted = found == I8, "int8"
	case uint8:
		holds, wanted = found == U8, "uint8"
	case uint16:
		holds, wanted = found == F16 || found == BF16, "uint16"
	}
	if !holds {
		return refuse("the tensor holds %s, which is not %s; its bytes are there by ReadAt and WriteAt", found, wanted)
	}
	return nil
}

// bytesOf are the bytes of values, not copied.
func bytesOf[T Element](values []T) []byte {
	if len(values) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), len(values)*int(unsafe.Sizeof(values[0])))
}
