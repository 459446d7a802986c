package tessera

import (
	"context"
	"encoding/json"
	"io"
	"strings"

	"tessera.dev/tessera/raw"
)

// Dataset is what a trainer reads: a text cut into samples, rows of training data (JSON lines), or rows of token ids.
// Immutable; any goroutine. Options: seq, eval_fraction, shuffle, seed, of texts special, and of rows those of
// docs/guides/training-data.md: kind, template, mask, packing and others.
type Dataset handle

func newDataset(h *handle, err error) (*Dataset, error) { return (*Dataset)(h), err }

// OpenDataset reads and tokenises a text file, or rows of training data (JSON): the content decides.
func OpenDataset(path string, tokenizer *Tokenizer, options Options) (*Dataset, error) {
	if err := noNUL("path", path); err != nil {
		return nil, err
	}
	return newDataset((*handle)(tokenizer).holdWith(raw.Tsr_dataset_free, options, func(t, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_dataset_new_file(path, t, o, out)
	}))
}

// CheckText says whether a text is plain text in UTF-8, for what reads texts alone. name begins messages; takesTables: lines of
// tab-separated texts are text too.
func CheckText(text, name string, takesTables bool) error {
	if err := noNUL("name", name); err != nil {
		return err
	}
	tables := 0
	if takesTables {
		tables = 1
	}
	return call(func() uintptr { return raw.Tsr_text_check(text, name, tables) })
}

// ReadText is all of a file, of a pipe, or of standard input for "-": at most `most` bytes (0: any) and half of the memory.
func ReadText(path string, most int64) (string, error) {
	if err := noNUL("path", path); err != nil {
		return "", err
	}
	return text(func(out *uintptr) uintptr { return raw.Tsr_text_read(path, most, out) })
}

// WriteText writes a text to a file: whole or not at all, with the permissions of the file that it replaces.
func WriteText(path, content string) error {
	if err := noNUL("path", path); err != nil {
		return err
	}
	return call(func() uintptr { return raw.Tsr_text_write(content, path) })
}

// CheckTextPath says what WriteText would say at once; without takesDevices also of devices, pipes and sockets.
func CheckTextPath(path string, takesDevices bool) error {
	if err := noNUL("path", path); err != nil {
		return err
	}
	devices := 0
	if takesDevices {
		devices = 1
	}
	return call(func() uintptr { return raw.Tsr_text_check_path(path, devices) })
}

// NewDataset tokenises a text.
func NewDataset(text string, tokenizer *Tokenizer, options Options) (*Dataset, error) {
	return newDataset((*handle)(tokenizer).holdWith(raw.Tsr_dataset_free, options, func(t, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_dataset_new_text(text, t, o, out)
	}))
}

// OpenDatasetContext is OpenDataset in steps: it shows progress, and ends with the context.
func OpenDatasetContext(ctx context.Context, path string, tokenizer *Tokenizer, options Options, progress func(done float64)) (*Dataset, error) {
	if err := noNUL("path", path); err != nil {
		return nil, err
	}
	return readingDataset(ctx, tokenizer, options, progress, func(t, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_dataset_begin_file(0, path, t, o, out)
	})
}

// NewDatasetContext is NewDataset in steps.
func NewDatasetContext(ctx context.Context, text string, tokenizer *Tokenizer, options Options, progress func(done float64)) (*Dataset, error) {
	return readingDataset(ctx, tokenizer, options, progress, func(t, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_dataset_begin_text(0, text, t, o, out)
	})
}

func readingDataset(ctx context.Context, tokenizer *Tokenizer, options Options, progress func(done float64),
	construct func(t, o uintptr, out *uintptr) uintptr) (*Dataset, error) {
	w, err := (*handle)(tokenizer).begin(options, construct)
	if err != nil {
		return nil, err
	}
	return newDataset(w.made(ctx, progress, raw.Tsr_dataset_free, raw.Tsr_dataset_finish))
}

// ReadDataset reads a text to its end and tokenises it.
func ReadDataset(reader io.Reader, tokenizer *Tokenizer, options Options) (*Dataset, error) {
	if reader == nil {
		return nil, refuse("reader is nil")
	}
	var text strings.Builder
	if _, err := io.Copy(&text, reader); err != nil {
		return nil, err
	}
	return NewDataset(text.String(), tokenizer, options)
}

// NewDatasetTokens takes token ids, which are copied.
func NewDatasetTokens(ids []int32, options Options) (*Dataset, error) {
	return newDataset(holdWith(raw.Tsr_dataset_free, options, func(o uintptr, out *uintptr) uintptr {
		return raw.Tsr_dataset_new_tokens(ids, o, out)
	}))
}

// TokenRows are rows of as many tokens each, one after another. Of what is given to NewDatasetRows all but Tokens may be
// nil.
type TokenRows struct {
	Tokens    []int32
	Labels    []int32   // the token that should follow, or -1
	Weights   []float32 // factors on the losses of labels; 0: the label does not count
	Segments  []int32   // number of the document that a token is of
	Positions []int32   // in its document
}

// NewDatasetRows takes rows of seq tokens, which are copied.
func NewDatasetRows(rows TokenRows, seq int64, options Options) (*Dataset, error) {
	if seq < 1 || len(rows.Tokens) == 0 || int64(len(rows.Tokens))%seq != 0 {
		return nil, refuse("the tokens are no rows of seq")
	}
	for _, length := range []int{len(rows.Labels), len(rows.Weights), len(rows.Segments), len(rows.Positions)} {
		if length != 0 && length != len(rows.Tokens) {
			return nil, refuse("labels, weights, segments and positions are as many as tokens, or nil")
		}
	}
	count := int64(len(rows.Tokens)) / seq
	weights := (*float32)(nil)
	if len(rows.Weights) > 0 {
		weights = &rows.Weights[0]
	}
	return newDataset(holdWith(raw.Tsr_dataset_free, options, func(o uintptr, out *uintptr) uintptr {
		return raw.Tsr_dataset_new_rows(count, seq, firstOf(rows.Tokens), firstOf(rows.Labels), weights,
			firstOf(rows.Segments), firstOf(rows.Positions), o, out)
	}))
}

func firstOf(values []int32) *int32 {
	if len(values) == 0 {
		return nil
	}
	return &values[0]
}

// Rows are what the trainer feeds at a global step, from 0: batch rows of seq tokens.
func (d *Dataset) Rows(step, batch int64) (TokenRows, error) {
	info, err := d.Info()
	if err != nil {
		return TokenRows{}, err
	}
	var known struct{ Seq int64 }
	if err := json.Unmarshal([]byte(info), &known); err != nil {
		return TokenRows{}, err
	}
	if batch < 1 || batch > 1<<24 {
		return TokenRows{}, refuse("batch is not 1 to 2^24")
	}
	c, done := (*handle)(d).use()
	defer done()
	count := batch * known.Seq
	rows := TokenRows{Tokens: make([]int32, count), Labels: make([]int32, count), Segments: make([]int32, count),
		Positions: make([]int32, count)}
	return rows, failure(raw.Tsr_dataset_rows(c, step, batch, &rows.Tokens[0], &rows.Labels[0], &rows.Positions[0], &rows.Segments[0], count, nil))
}

// Example is JSON: an example of rows of training data, by number from 0: its ids, and which of them are trained.
func (d *Dataset) Example(number int64) (string, error) {
	return (*handle)(d).text(func(c uintptr, out *uintptr) uintptr { return raw.Tsr_dataset_example(c, number, out) })
}

// Close frees it; see the package.
func (d *Dataset) Close() { (*handle)(d).close() }

// Info is JSON: tokens, samples, the entropy of the tokens' frequencies.
func (d *Dataset) Info() (string, error) { return (*handle)(d).text(raw.Tsr_dataset_info) }

// Batch is the training batch of a global step, from 0: for each sample seq + 1 ids.
func (d *Dataset) Batch(step, batch int64) ([][]int32, error) {
	c, done := (*handle)(d).use()
	defer done()
	ids, err := int32s(func(items []int32, count *uint64) uintptr {
		return raw.Tsr_dataset_batch(c, step, batch, items, count)
	})
	if err != nil || batch == 0 {
		return nil, err
	}
	samples := make([][]int32, batch)
	length := len(ids) / len(samples)
	for i := range samples {
		samples[i] = ids[i*length : (i+1)*length : (i+1)*length]
	}
	return samples, nil
}
