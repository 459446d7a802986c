package tessera

import (
	"context"
	"io"
	"strings"

	"tessera.dev/tessera/raw"
)

// Dataset is token ids cut into samples. Immutable; any goroutine. Options: seq, eval_fraction, shuffle, seed, and of texts
// special.
type Dataset handle

func newDataset(h *handle, err error) (*Dataset, error) { return (*Dataset)(h), err }

// OpenDataset reads and tokenises a text file.
func OpenDataset(path string, tokenizer *Tokenizer, options Options) (*Dataset, error) {
	if err := noNUL("path", path); err != nil {
		return nil, err
	}
	return newDataset((*handle)(tokenizer).holdWith(raw.Tsr_dataset_free, options, func(t, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_dataset_new_file(path, t, o, out)
	}))
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
		return raw.Tsr_reading_new_file(0, path, t, o, out)
	})
}

// NewDatasetContext is NewDataset in steps.
func NewDatasetContext(ctx context.Context, text string, tokenizer *Tokenizer, options Options, progress func(done float64)) (*Dataset, error) {
	return readingDataset(ctx, tokenizer, options, progress, func(t, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_reading_new_text(0, text, t, o, out)
	})
}

func readingDataset(ctx context.Context, tokenizer *Tokenizer, options Options, progress func(done float64),
	construct func(t, o uintptr, out *uintptr) uintptr) (*Dataset, error) {
	reading, err := (*handle)(tokenizer).holdWith(raw.Tsr_reading_free, options, construct)
	if err != nil {
		return nil, err
	}
	return newDataset(made(ctx, reading, raw.Tsr_reading_step, progress, raw.Tsr_dataset_free, raw.Tsr_reading_finish))
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
