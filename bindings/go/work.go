package tessera

import (
	"context"
	"strings"

	"tessera.dev/tessera/raw"
)

// work steps long work of C to its end. `progress`, which may be nil, is told the share that is done after every step.
// If the context ends before that, work returns the context's error; freeing the handle removes what was written. cancel
// ends a step in progress; nil where steps are short.
func work(ctx context.Context, cancel func(), h *handle, step func(c uintptr, done *float64) uintptr, progress func(done float64)) error {
	c, release := h.use()
	defer release()
	for done := 0.0; done < 1; {
		one := func() error { return failure(step(c, &done)) }
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if cancel != nil {
			err = until(ctx, cancel, one)
		} else {
			err = one()
		}
		if err != nil {
			return err
		}
		if progress != nil {
			progress(done)
		}
	}
	return nil
}

// report finishes work whose result is a report.
func report(ctx context.Context, cancel func(), h *handle, step func(c uintptr, done *float64) uintptr,
	finish func(c uintptr, made *uintptr) uintptr, progress func(done float64)) (string, error) {
	defer h.close()
	if err := work(ctx, cancel, h, step, progress); err != nil {
		return "", err
	}
	return h.text(finish)
}

// made finishes work whose result is a handle.
func made(ctx context.Context, h *handle, step func(c uintptr, done *float64) uintptr, progress func(done float64),
	free func(uintptr), finish func(c uintptr, out *uintptr) uintptr) (*handle, error) {
	defer h.close()
	if err := work(ctx, nil, h, step, progress); err != nil {
		return nil, err
	}
	return h.hold(free, finish)
}

// LoadModelContext is LoadModel in steps: it shows progress, and ends with the context. Options: verify.
func LoadModelContext(ctx context.Context, path string, options Options, progress func(done float64)) (*Model, error) {
	if err := noNUL("path", path); err != nil {
		return nil, err
	}
	loading, err := holdWith(raw.Tsr_loading_free, options, func(o uintptr, out *uintptr) uintptr {
		return raw.Tsr_loading_new(0, path, o, out)
	})
	if err != nil {
		return nil, err
	}
	return newModel(made(ctx, loading, raw.Tsr_loading_step, progress, raw.Tsr_model_free, raw.Tsr_loading_finish))
}

// ConvertModel writes the model's file `in` as the .tsr file `out`, a slice of a tensor at a time, however large it is.
// After an error, or if the context ends, `out` is unchanged. Options: compress, verify, and to quantise type, pure,
// output_type, embedding_type, imatrix, threads. The report is JSON: what was read and what was written.
func ConvertModel(ctx context.Context, in, out string, options Options, progress func(done float64)) (string, error) {
	if err := noNUL("path", in, out); err != nil {
		return "", err
	}
	h, err := holdWith(raw.Tsr_conversion_free, options, func(o uintptr, made *uintptr) uintptr {
		return raw.Tsr_conversion_new(0, in, out, o, made)
	})
	if err != nil {
		return "", err
	}
	return report(ctx, nil, h, raw.Tsr_conversion_step, raw.Tsr_conversion_finish, progress)
}

// SaveContext writes the .tsr file of Save in steps: it shows progress, and ends with the context. Options: those of
// ConvertModel, which quantise too; the report is as its.
func (m *Model) SaveContext(ctx context.Context, path string, options Options, progress func(done float64)) (string, error) {
	if err := noNUL("path", path); err != nil {
		return "", err
	}
	h, err := (*handle)(m).holdWith(raw.Tsr_conversion_free, options, func(c, o uintptr, made *uintptr) uintptr {
		return raw.Tsr_conversion_new_for_model(0, c, path, o, made)
	})
	if err != nil {
		return "", err
	}
	return report(ctx, nil, h, raw.Tsr_conversion_step, raw.Tsr_conversion_finish, progress)
}

// SaveModelContext is SaveModel in steps, as Model.SaveContext. Meanwhile the trainer can do nothing else.
func (t *Trainer) SaveModelContext(ctx context.Context, model *Model, path string, options Options, progress func(done float64)) (string, error) {
	if err := noNUL("path", path); err != nil {
		return "", err
	}
	c, release := (*handle)(t).use()
	defer release()
	h, err := (*handle)(model).holdWith(raw.Tsr_conversion_free, options, func(m, o uintptr, made *uintptr) uintptr {
		return raw.Tsr_conversion_new_for_trainer(c, m, path, o, made)
	})
	if err != nil {
		return "", err
	}
	return report(ctx, nil, h, raw.Tsr_conversion_step, raw.Tsr_conversion_finish, progress)
}

// SaveContext is Save in steps: it shows progress; if the context ends before that, the folder is unchanged. Meanwhile the
// trainer can do nothing else.
func (t *Trainer) SaveContext(ctx context.Context, folder string, progress func(done float64)) error {
	if err := noNUL("folder", folder); err != nil {
		return err
	}
	h, err := (*handle)(t).hold(raw.Tsr_saving_free, func(c uintptr, out *uintptr) uintptr {
		return raw.Tsr_saving_new(c, folder, out)
	})
	if err != nil {
		return err
	}
	defer h.close()
	if err := work(ctx, nil, h, raw.Tsr_saving_step, progress); err != nil {
		return err
	}
	return h.call(raw.Tsr_saving_finish)
}

// Saving is a checkpoint that is written from a copy of a trainer's values, while the trainer goes on.
type Saving handle

// StartSave copies a checkpoint's contents to host memory, and begins to write them to folder on a thread of its own. The
// trainer is free when it returns. Notes are texts and numbers that CheckpointInfo gives back as texts; nil: none.
func (t *Trainer) StartSave(folder string, notes Options) (*Saving, error) {
	if err := noNUL("folder", folder); err != nil {
		return nil, err
	}
	h, err := (*handle)(t).holdWith(raw.Tsr_saving_free, notes, func(c, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_saving_new_snapshot(c, folder, o, out)
	})
	return (*Saving)(h), err
}

// Finish waits until all is written, on any goroutine, and puts the checkpoint in its place. progress may be nil. If the
// context ends before that, Finish returns its error; then it can be called again.
func (s *Saving) Finish(ctx context.Context, progress func(done float64)) error {
	if err := work(ctx, nil, (*handle)(s), raw.Tsr_saving_step, progress); err != nil {
		return err
	}
	return (*handle)(s).call(raw.Tsr_saving_finish)
}

// Close frees it; what was not finished is given up, and the folder is as it was.
func (s *Saving) Close() { (*handle)(s).close() }

// ExportModel writes the model's file or folder `in` for other projects: a Hugging Face folder, or a GGUF file for
// llama.cpp. After an error, or if the context ends, `out` is unchanged. Options: format (hf, gguf, peft), adapters, merged,
// type, tokenizer, threads, shard_bytes, and for gguf pure, output_type, embedding_type, imatrix. The report is JSON.
func ExportModel(ctx context.Context, in, out string, options Options, progress func(done float64)) (string, error) {
	if err := noNUL("path", in, out); err != nil {
		return "", err
	}
	h, err := holdWith(raw.Tsr_export_free, options, func(o uintptr, made *uintptr) uintptr {
		return raw.Tsr_export_new(0, in, out, o, made)
	})
	if err != nil {
		return "", err
	}
	return report(ctx, nil, h, raw.Tsr_export_step, raw.Tsr_export_finish, progress)
}

// Export writes a model in memory as ExportModel does its file; nobody must write to it meanwhile.
func (m *Model) Export(ctx context.Context, out string, options Options, progress func(done float64)) (string, error) {
	if err := noNUL("path", out); err != nil {
		return "", err
	}
	h, err := (*handle)(m).holdWith(raw.Tsr_export_free, options, func(c, o uintptr, made *uintptr) uintptr {
		return raw.Tsr_export_new_for_model(0, c, out, o, made)
	})
	if err != nil {
		return "", err
	}
	return report(ctx, nil, h, raw.Tsr_export_step, raw.Tsr_export_finish, progress)
}

// WriteImatrix sums how large the inputs of the model's matrices are over a text, and writes an importance matrix to the
// file `out`, for option imatrix of ConvertModel. After an error, or if the context ends, `out` is unchanged. Options: seq,
// batch, bos, name, and those that place a Scorer. The report is JSON.
func WriteImatrix(ctx context.Context, r *Runtime, model *Model, ids []int32, out string, options Options, progress func(done float64)) (string, error) {
	if err := noNUL("path", out); err != nil {
		return "", err
	}
	c, release := (*handle)(r).use()
	defer release()
	h, err := (*handle)(model).holdWith(raw.Tsr_imatrix_free, options, func(m, o uintptr, made *uintptr) uintptr {
		return raw.Tsr_imatrix_new(c, m, ids, out, o, made)
	})
	if err != nil {
		return "", err
	}
	return report(ctx, r.Cancel, h, raw.Tsr_imatrix_step, raw.Tsr_imatrix_finish, progress)
}

// joined puts texts one after another, with the bytes of each.
func joined(texts []string) (string, []uint64) {
	lengths := make([]uint64, len(texts))
	for i, text := range texts {
		lengths[i] = uint64(len(text))
	}
	return strings.Join(texts, ""), lengths
}

// joinedIDs puts token ids of texts one after another, with the number of each.
func joinedIDs(texts [][]int32) ([]int32, []uint64) {
	var ids []int32
	lengths := make([]uint64, len(texts))
	for i, text := range texts {
		ids = append(ids, text...)
		lengths[i] = uint64(len(text))
	}
	return ids, lengths
}
