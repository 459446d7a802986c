package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"tessera.dev/tessera"
)

// certificate is that of an estimate, as text.
func certificate(t *testing.T, estimate string) string {
	t.Helper()
	var found struct{ Certificate json.RawMessage }
	check(t, json.Unmarshal([]byte(estimate), &found))
	return string(found.Certificate)
}

// saved is a model's file.
func saved(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.tsr")
	check(t, tessera.CheckModelPath(path))
	check(t, newModel(t).SaveWith(path, tessera.Options{"compress": false}))
	check(t, tessera.VerifyModel(path))
	return must2(os.ReadFile(path))
}

// failing is a reader whose n-th read fails as it says; the others read.
type failing struct {
	io.ReaderAt
	left atomic.Int32
	fail func() (int, error)
}

func (f *failing) ReadAt(p []byte, offset int64) (int, error) {
	if f.left.Add(-1) < 0 {
		return f.fail()
	}
	return f.ReaderAt.ReadAt(p, offset)
}

func Test_models_come_from_readers_and_bytes(t *testing.T) {
	file := saved(t)
	info := must2(newModel(t).Info())
	size := int64(len(file))
	want := len(must2(newModel(t).Parameters()))
	names := func(model *tessera.Model) int {
		for _, name := range must2(model.Parameters()) {
			must2(tessera.Values[float32](must2(model.Read(name))))
		}
		return len(must2(model.Parameters()))
	}
	wanted(t, "through a reader", names(must2(tessera.LoadModelReader(bytes.NewReader(file), size))), want)
	wanted(t, "of bytes", names(must2(tessera.LoadModelBytes(file))), want)
	wanted(t, "the same", strings.Contains(info, `"architecture":"llama"`), true)

	memory, free, err := tessera.CMemory(len(file))
	check(t, err)
	copy(memory, file)
	var released atomic.Int32
	model := must2(tessera.BorrowModel(memory, func() { released.Add(1); free() }))
	view := must2(model.Read("output"))
	model.Close()
	wanted(t, "a view keeps the memory", released.Load(), 0)
	view.Close()
	wanted(t, "given back", released.Load(), 1)
	_, err = tessera.BorrowModel([]byte("nonsense"), func() { released.Add(1) })
	refused(t, err, tessera.ErrCorrupt, "")
	wanted(t, "given back after a failure", released.Load(), 2)
	refused(t, second(tessera.LoadModelBytes(nil)), tessera.ErrCorrupt, "")
	refused(t, second(tessera.LoadModelReader(nil, 1)), tessera.ErrInvalidArgument, "reader")
	refused(t, second(tessera.LoadModelReader(bytes.NewReader(file), -1)), tessera.ErrCorrupt, "")
}

func Test_errors_and_panics_of_readers_come_out_as_errors(t *testing.T) {
	file := saved(t)
	ours := errors.New("the disk is wet")
	for _, reads := range []int32{0, 1} {
		reader := &failing{ReaderAt: bytes.NewReader(file), fail: func() (int, error) { return 0, ours }}
		reader.left.Store(reads)
		_, err := tessera.LoadModelReader(reader, int64(len(file)))
		refused(t, err, tessera.ErrIO, "the disk is wet")
		wanted(t, "the reader's own error", errors.Is(err, ours), true)

		reader = &failing{ReaderAt: bytes.NewReader(file), fail: func() (int, error) { panic("out of paper") }}
		reader.left.Store(reads)
		_, err = tessera.LoadModelReader(reader, int64(len(file)))
		refused(t, err, tessera.ErrIO, "panicked: out of paper")

		reader = &failing{ReaderAt: bytes.NewReader(file), fail: func() (int, error) { runtime.Goexit(); return 0, nil }}
		reader.left.Store(reads)
		_, err = tessera.LoadModelReader(reader, int64(len(file)))
		refused(t, err, tessera.ErrIO, "ended its goroutine")

		reader = &failing{ReaderAt: bytes.NewReader(file), fail: func() (int, error) { return 0, nil }}
		reader.left.Store(reads)
		_, err = tessera.LoadModelReader(reader, int64(len(file)))
		wanted(t, "short reads", errors.Is(err, io.ErrUnexpectedEOF), true)
	}
}

func Test_models_show_and_take_parameters_and_metadata(t *testing.T) {
	model := newModel(t)
	names := must2(model.Parameters())
	wanted(t, "names", strings.Contains(strings.Join(names, " "), "block.0.q"), true)
	before := must2(model.Read("block.0.q"))
	wanted(t, "name", before.Name(), "block.0.q")
	changed := must2(tessera.NewTensor(tessera.F32, before.Dims()...))
	check(t, model.Write("block.0.q", changed))
	changed.Close()
	wanted(t, "written", must2(tessera.Values[float32](must2(model.Read("block.0.q"))))[0], 0)
	wanted(t, "a view stays", must2(tessera.Values[float32](before))[0] != 0, true)
	refused(t, second(model.Read("block.0.qq")), tessera.ErrNotFound, "block.0.q")
	refused(t, model.Write("block.0.q", must2(tessera.NewTensor(tessera.F32, 1))), tessera.ErrInvalidArgument, "")
	refused(t, model.Write("block.0.q", nil), tessera.ErrInvalidArgument, "")

	_, found, err := model.Metadata("author")
	wanted(t, "no metadata", fmt.Sprint(found, err), "false <nil>")
	long := strings.Repeat("ä", 1000)
	check(t, model.SetMetadata("author", long))
	value, found, err := model.Metadata("author")
	wanted(t, "metadata", fmt.Sprint(value == long, found, err), "true true <nil>")
	check(t, model.SetMetadata("author", ""))
	_, found, err = model.Metadata("author")
	wanted(t, "metadata removed", fmt.Sprint(found, err), "false <nil>")
	refused(t, model.SetMetadata("author", "a\x00b"), tessera.ErrInvalidArgument, "NUL")
	refused(t, second(tessera.LoadModel("nowhere.tsr")), tessera.ErrNotFound, "nowhere.tsr")
	refused(t, tessera.VerifyModel("nowhere.tsr"), tessera.ErrNotFound, "nowhere.tsr")

	r := newRuntime(t)
	path := filepath.Join(t.TempDir(), "q.tsr")
	report := must2(model.QuantizeContext(context.Background(), r, path, tessera.Options{"type": "q8_0"}))
	wanted(t, "quantised", strings.Contains(report, `"type":"q8_0"`), true)
}

func Test_tokenizers_encode_batches(t *testing.T) {
	tokenizer := must2(tessera.NewByteTokenizer())
	wanted(t, "vocabulary", fmt.Sprint(tokenizer.VocabularySize(), tokenizer.BOS(), tokenizer.EOS()), "256 -1 -1")
	batch := must2(tokenizer.EncodeBatch([]string{"ab", "", "\x00\xff"}, 0, 2))
	wanted(t, "ids", fmt.Sprint(batch), "[[97 98] [] [0 255]]")
	wanted(t, "no texts", len(must2(tokenizer.EncodeBatch(nil, 0, 0))), 0)
	wanted(t, "flags", fmt.Sprint(must2(tokenizer.EncodeWith("a", tessera.EncodeBOS|tessera.EncodeSpecial))), "[97]")
	ids, begins, err := tokenizer.EncodeRanges("abc", []tessera.TextRange{{Begin: 0, End: 1}})
	wanted(t, "ranges", fmt.Sprint(ids, begins, err), "[97 98 99] [0 1 2] <nil>")
	ids, begins, err = tokenizer.EncodeRanges("", nil)
	wanted(t, "ranges of nothing", fmt.Sprint(ids, begins, err), "[] [] <nil>")
	refused(t, second(tokenizer.Decode([]int32{256})), tessera.ErrInvalidArgument, "256")
	tokenizer.Close()
	wanted(t, "closed", tokenizer.VocabularySize(), 0)
	refused(t, second(tokenizer.EncodeBatch([]string{"a"}, 0, 1)), tessera.ErrInvalidArgument, "tokenizer")
}
