package api_test

import (
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"tessera.dev/tessera"
)

func roundTrip[T tessera.Element](t *testing.T, dtype tessera.DType, values ...T) {
	t.Helper()
	tensor, err := tessera.TensorOf(values)
	check(t, err)
	wanted(t, "type", tensor.DType(), dtype)
	back, err := tessera.Values[T](tensor)
	check(t, err)
	wanted(t, "values", fmt.Sprint(back), fmt.Sprint(values))
}

func Test_tensors_are_filled_from_slices_and_read_into_slices(t *testing.T) {
	roundTrip[float32](t, tessera.F32, 1.5, -2, 3e30)
	roundTrip[float64](t, tessera.F64, 1.5, -2)
	roundTrip[int32](t, tessera.I32, 1, -2)
	roundTrip[int64](t, tessera.I64, 1<<40, -2)
	roundTrip[int8](t, tessera.I8, 1, -128)
	roundTrip[uint8](t, tessera.U8, 1, 255)
	roundTrip[float32](t, tessera.F32)

	tensor, err := tessera.TensorOf([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	check(t, err)
	wanted(t, "text", tensor.String(), "f32[2, 3]")
	wanted(t, "size", tensor.Size(), 24)
	wanted(t, "writable", tensor.Writable(), true)
	wanted(t, "address", tensor.Address() != 0, true)
	part := make([]byte, 8)
	count, err := tensor.ReadAt(part, 20)
	wanted(t, "bytes of the end", fmt.Sprint(count, err), fmt.Sprint(4, io.EOF))
	count, err = tensor.WriteAt([]byte{0, 0, 0, 0}, 4)
	wanted(t, "bytes written", fmt.Sprint(count, err), "4 <nil>")
	wanted(t, "after them", fmt.Sprint(must2(tessera.Values[float32](tensor))), "[1 0 3 4 5 6]")
	all, err := io.ReadAll(io.NewSectionReader(tensor, 0, tensor.Size()))
	check(t, err)
	wanted(t, "all bytes", len(all), 24)

	half, err := tessera.NewTensor(tessera.F16, 2)
	check(t, err)
	check(t, tessera.SetValues(half, []uint16{0x3c00, 0xc000}))
	wanted(t, "bits of f16", fmt.Sprint(must2(tessera.Values[uint16](half))), "[15360 49152]")
	scalar, err := tessera.ScalarOf(float32(2))
	check(t, err)
	wanted(t, "scalar", scalar.String()+fmt.Sprint(must2(tessera.Values[float32](scalar))), "f32[][2]")
}

func must2[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func Test_tensors_refuse_what_does_not_fit(t *testing.T) {
	tensor, err := tessera.TensorOf([]float32{1, 2})
	check(t, err)
	refused(t, second(tessera.Values[int32](tensor)), tessera.ErrInvalidArgument, "holds f32, which is not int32")
	refused(t, tessera.SetValues(tensor, []float32{1}), tessera.ErrInvalidArgument, "1 values for a tensor of 2")
	refused(t, second(tessera.TensorOf([]float32{1, 2}, 3)), tessera.ErrInvalidArgument, "2 values for a tensor of 3")
	refused(t, second(tessera.TensorOf([]uint16{1})), tessera.ErrInvalidArgument, "f16 or bf16")
	refused(t, second(tessera.NewTensor(tessera.F32, -1)), tessera.ErrInvalidArgument, "-1")
	refused(t, second(tessera.NewTensor(tessera.F32, 1<<40, 1<<40)), tessera.ErrInvalidArgument, "1099511627776")
	refused(t, second(tessera.NewTensor(tessera.DType(99), 1)), tessera.ErrInvalidArgument, "99")
	refused(t, second(tessera.NewTensor(tessera.F32, 1, 1, 1, 1, 1, 1, 1)), tessera.ErrInvalidArgument, "7")
	refused(t, second(tensor.WriteAt(make([]byte, 9), 0)), tessera.ErrInvalidArgument, "9 bytes")
	refused(t, second(tensor.ReadAt(nil, -1)), tessera.ErrInvalidArgument, "-1")
	tensor.Close()
	tensor.Close()
	for _, gone := range []*tessera.Tensor{tensor, nil, {}} {
		refused(t, second(tessera.Values[float32](gone)), tessera.ErrInvalidArgument, "closed")
		refused(t, tessera.SetValues(gone, []float32{1}), tessera.ErrInvalidArgument, "closed")
		refused(t, second(gone.ReadAt(nil, 0)), tessera.ErrInvalidArgument, "closed")
		wanted(t, "no tensor", gone.Size(), 0)
		wanted(t, "no tensor", gone.Name(), "")
	}
}

func Test_borrowed_memory_is_given_back_once_when_nothing_uses_it(t *testing.T) {
	data, free, err := tessera.CMemory(8)
	check(t, err)
	var released atomic.Int32
	copy(data, []byte{0, 0, 128, 63, 0, 0, 0, 64})
	tensor, err := tessera.BorrowTensor(tessera.F32, data, func() { released.Add(1); free() }, 2)
	check(t, err)
	wanted(t, "values", fmt.Sprint(must2(tessera.Values[float32](tensor))), "[1 2]")
	wanted(t, "writable", tensor.Writable(), false)
	refused(t, tessera.SetValues(tensor, []float32{1, 2}), tessera.ErrFailedPrecondition, "borrowed")

	// A model that the tensor was written into borrows too.
	graph, err := tessera.ParseGraph("graph {\n symbol B\n input x: f32[B, 1]\n parameter w: f32[1, 2]\n y = matmul(x, w) : f32[B, 2]\n output y = y\n}")
	check(t, err)
	model, err := tessera.NewModelFromGraph(graph, nil)
	check(t, err)
	shaped, err := tessera.BorrowTensor(tessera.F32, data, func() { released.Add(1); tensor.Close() }, 1, 2)
	check(t, err)
	check(t, model.Write("w", shaped))
	shaped.Close()
	wanted(t, "while the model has it", released.Load(), 0)
	model.Close()
	wanted(t, "closed in a release function", released.Load(), 2)

	_, err = tessera.BorrowTensor(tessera.F32, make([]byte, 3), func() { released.Add(1) }, 1)
	refused(t, err, tessera.ErrInvalidArgument, "the memory given has 3")
	wanted(t, "after a failure", released.Load(), 3)
	func() {
		lost, err := tessera.BorrowTensor(tessera.U8, nil, func() { released.Add(1); panic("dropped") }, 0)
		check(t, err)
		wanted(t, "no bytes", lost.Size(), 0)
	}()
	collected(t, "a finaliser gives back", func() bool { return released.Load() == 4 })
}
