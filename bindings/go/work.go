package tessera

import (
	"context"
	"strings"

	"tessera.dev/tessera/raw"
)

// workHandle is long work of C: begun, stepped to its end, finished and freed; freeing it before it is finished cancels it.
type workHandle handle

func beginWork(h *handle, err error) (*workHandle, error) { return (*workHandle)(h), err }

// begin makes work from a C function without another handle.
func begin(options Options, construct func(o uintptr, out *uintptr) uintptr) (*workHandle, error) {
	return beginWork(holdWith(raw.Tsr_work_free, options, construct))
}

// begin makes work from a C function of this handle.
func (h *handle) begin(options Options, construct func(c, o uintptr, out *uintptr) uintptr) (*workHandle, error) {
	return beginWork(h.holdWith(raw.Tsr_work_free, options, construct))
}

// progressOf is the share that is done, and what is done now.
func progressOf(c uintptr) (fraction float64, label string, err error) {
	found := raw.NewTsr_progress()
	defer raw.DeleteTsr_progress(found)
	found.SetStruct_size(raw.Tsr_raw_progress_size())
	if err := failure(raw.Tsr_work_progress(c, found)); err != nil {
		return 0, "", err
	}
	return found.GetFraction(), found.GetLabel(), nil
}

// run steps the work to its end. tell, which may be nil, hears the share that is done, and what is done now, after every step. If the
// context ends before that, run returns the context's error; freeing the work removes what was written. cancel ends a step in
// progress; nil where steps are short.
func (w *workHandle) run(ctx context.Context, cancel func(), tell func(done float64, label string)) error {
	c, release := (*handle)(w).use()
	defer release()
	return steps(ctx, cancel, func() (bool, error) {
		var done int32
		err := failure(raw.Tsr_work_step(c, &done))
		return done != 0, err
	}, func() error {
		if tell == nil {
			return nil
		}
		fraction, label, err := progressOf(c)
		if err == nil {
			tell(fraction, label)
		}
		return err
	})
}

// steps calls step and then tell repeatedly, until step reports done, either fails, or the context ends. cancel is as for run.
func steps(ctx context.Context, cancel func(), step func() (done bool, err error), tell func() error) error {
	for done := false; !done; {
		one := func() (err error) {
			done, err = step()
			return err
		}
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
		if err := tell(); err != nil {
			return err
		}
	}
	return nil
}

// shares runs steps for a scorer or embedder, whose C step function returns the completed fraction.
func shares(ctx context.Context, cancel func(), c uintptr, step func(c uintptr, done *float64) uintptr, progress func(done float64)) error {
	var done float64
	return steps(ctx, cancel, func() (bool, error) {
		err := failure(step(c, &done))
		return done >= 1, err
	}, func() error {
		if progress != nil {
			progress(done)
		}
		return nil
	})
}

// share adapts a progress callback without a label to run's tell.
func share(progress func(done float64)) func(float64, string) {
	if progress == nil {
		return nil
	}
	return func(done float64, _ string) { progress(done) }
}

// report finishes work whose result is a report, and frees it.
func (w *workHandle) report(ctx context.Context, cancel func(), finish func(c uintptr, made *uintptr) uintptr, progress func(done float64)) (string, error) {
	defer (*handle)(w).close()
	if err := w.run(ctx, cancel, share(progress)); err != nil {
		return "", err
	}
	return (*handle)(w).text(finish)
}

// made finishes work whose result is a handle, and frees it.
func (w *workHandle) made(ctx context.Context, progress func(done float64), free func(uintptr), finish func(c uintptr, out *uintptr) uintptr) (*handle, error) {
	defer (*handle)(w).close()
	if err := w.run(ctx, nil, share(progress)); err != nil {
		return nil, err
	}
	return (*handle)(w).hold(free, finish)
}

// LoadModelContext is LoadModel in steps: it shows progress, and ends with the context. Options: verify.
func LoadModelContext(ctx context.Context, path string, options Options, progress func(done float64)) (*Model, error) {
	if err := noNUL("path", path); err != nil {
		return nil, err
	}
	w, err := begin(options, func(o uintptr, out *uintptr) uintptr { return raw.Tsr_model_begin_load(0, path, o, out) })
	if err != nil {
		return nil, err
	}
	return newModel(w.made(ctx, progress, raw.Tsr_model_free, raw.Tsr_model_finish))
}

// ConvertModel writes the model's file `in` as the .tsr file `out`, a slice of a tensor at a time, however large it is.
// After an error, or if the context ends, `out` is unchanged. Options: compress, verify, and for quantisation: type,
// pure, output_type, embedding_type, imatrix, threads. The report is JSON: what was read and what was written.
func ConvertModel(ctx context.Context, in, out string, options Options, progress func(done float64)) (string, error) {
	if err := noNUL("path", in, out); err != nil {
		return "", err
	}
	w, err := begin(options, func(o uintptr, made *uintptr) uintptr {
		return raw.Tsr_conversion_begin(0, in, out, o, made)
	})
	if err != nil {
		return "", err
	}
	return w.report(ctx, nil, raw.Tsr_conversion_finish, progress)
}

// SaveContext writes the .tsr file of Save in steps: it shows progress, and ends with the context. Options and
// report are ConvertModel's, including those for quantisation.
func (m *Model) SaveContext(ctx context.Context, path string, options Options, progress func(done float64)) (string, error) {
	if err := noNUL("path", path); err != nil {
		return "", err
	}
	w, err := (*handle)(m).begin(options, func(c, o uintptr, made *uintptr) uintptr {
		return raw.Tsr_conversion_begin_for_model(0, c, path, o, made)
	})
	if err != nil {
		return "", err
	}
	return w.report(ctx, nil, raw.Tsr_conversion_finish, progress)
}

// SaveModelContext is SaveModel in steps, as Model.SaveContext. Meanwhile the trainer can do nothing else.
func (t *Trainer) SaveModelContext(ctx context.Context, model *Model, path string, options Options, progress func(done float64)) (string, error) {
	if err := noNUL("path", path); err != nil {
		return "", err
	}
	c, release := (*handle)(t).use()
	defer release()
	w, err := (*handle)(model).begin(options, func(m, o uintptr, made *uintptr) uintptr {
		return raw.Tsr_conversion_begin_for_trainer(c, m, path, o, made)
	})
	if err != nil {
		return "", err
	}
	return w.report(ctx, nil, raw.Tsr_conversion_finish, progress)
}

// SaveContext is Save in steps: it shows progress; if the context ends before that, the folder is unchanged. Meanwhile the
// trainer can do nothing else.
func (t *Trainer) SaveContext(ctx context.Context, folder string, progress func(done float64)) error {
	if err := noNUL("folder", folder); err != nil {
		return err
	}
	w, err := beginWork((*handle)(t).hold(raw.Tsr_work_free, func(c uintptr, out *uintptr) uintptr {
		return raw.Tsr_checkpoint_begin(c, folder, out)
	}))
	if err != nil {
		return err
	}
	defer (*handle)(w).close()
	if err := w.run(ctx, nil, share(progress)); err != nil {
		return err
	}
	return (*handle)(w).call(raw.Tsr_checkpoint_finish)
}

// Saving is a checkpoint that is written from a copy of a trainer's values, while the trainer goes on.
type Saving handle

// StartSave copies a checkpoint's contents to host memory, and begins to write them to folder on a thread of its own. The
// trainer is free when it returns. Notes are texts and numbers that CheckpointInfo gives back as texts; nil: none.
func (t *Trainer) StartSave(folder string, notes Options) (*Saving, error) {
	if err := noNUL("folder", folder); err != nil {
		return nil, err
	}
	w, err := (*handle)(t).begin(notes, func(c, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_checkpoint_begin_snapshot(c, folder, o, out)
	})
	return (*Saving)(w), err
}

// Finish waits until all is written, on any goroutine, and puts the checkpoint in its place. progress may be nil. If the
// context ends before that, Finish returns its error; then it can be called again.
func (s *Saving) Finish(ctx context.Context, progress func(done float64)) error {
	if err := (*workHandle)(s).run(ctx, nil, share(progress)); err != nil {
		return err
	}
	return (*handle)(s).call(raw.Tsr_checkpoint_finish)
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
	w, err := begin(options, func(o uintptr, made *uintptr) uintptr {
		return raw.Tsr_export_begin(0, in, out, o, made)
	})
	if err != nil {
		return "", err
	}
	return w.report(ctx, nil, raw.Tsr_export_finish, progress)
}

// Export writes a model in memory as ExportModel does its file; nobody must write to it meanwhile.
func (m *Model) Export(ctx context.Context, out string, options Options, progress func(done float64)) (string, error) {
	if err := noNUL("path", out); err != nil {
		return "", err
	}
	w, err := (*handle)(m).begin(options, func(c, o uintptr, made *uintptr) uintptr {
		return raw.Tsr_export_begin_for_model(0, c, out, o, made)
	})
	if err != nil {
		return "", err
	}
	return w.report(ctx, nil, raw.Tsr_export_finish, progress)
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
	w, err := (*handle)(model).begin(options, func(m, o uintptr, made *uintptr) uintptr {
		return raw.Tsr_imatrix_begin(c, m, ids, out, o, made)
	})
	if err != nil {
		return "", err
	}
	return w.report(ctx, r.Cancel, raw.Tsr_imatrix_finish, progress)
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
