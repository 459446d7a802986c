package tessera

import (
	"context"
	"tessera/raw"
)

// work steps long work of C to its end. `progress`, which may be nil, is told the share that is done after every step.
// If the context ends before that, work returns the context's error; freeing the handle removes what was written.
func work(ctx context.Context, h *handle, step func(c uintptr, done *float64) uintptr, progress func(done float64)) error {
	c, release := h.use()
	defer release()
	for done := 0.0; done < 1; {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := failure(step(c, &done)); err != nil {
			return err
		}
		if progress != nil {
			progress(done)
		}
	}
	return nil
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
	defer loading.close()
	if err := work(ctx, loading, raw.Tsr_loading_step, progress); err != nil {
		return nil, err
	}
	c, done := loading.use()
	defer done()
	return newModel(func(out *uintptr) uintptr { return raw.Tsr_loading_finish(c, out) })
}

// WriteImatrix sums how large the inputs of the model's matrices are over a text, and writes an importance matrix to the file
// `out`, for option imatrix of ConvertModel. After an error, or if the context ends, `out` is unchanged. Options: seq, batch,
// bos, name, and those that place a Scorer. The report is JSON.
func WriteImatrix(ctx context.Context, r *Runtime, model *Model, ids []int32, out string, options Options, progress func(done float64)) (report string, err error) {
	if err := noNUL("path", out); err != nil {
		return "", err
	}
	r0, release := (*handle)(r).use()
	defer release()
	m, releaseModel := (*handle)(model).use()
	defer releaseModel()
	imatrix, err := holdWith(raw.Tsr_imatrix_free, options, func(o uintptr, made *uintptr) uintptr {
		return raw.Tsr_imatrix_new(r0, m, ids, out, o, made)
	})
	if err != nil {
		return "", err
	}
	defer imatrix.close()
	if err := work(ctx, imatrix, raw.Tsr_imatrix_step, progress); err != nil {
		return "", err
	}
	c, done := imatrix.use()
	defer done()
	return text(func(made *uintptr) uintptr { return raw.Tsr_imatrix_finish(c, made) })
}

// ExportModel writes the model's file or folder `in` for other projects: a Hugging Face folder, or a GGUF file for
// llama.cpp. After an error, or if the context ends, `out` is unchanged. Options: format (hf, gguf, peft), adapters, merged, type, tokenizer,
// threads, shard_bytes, and for gguf pure, output_type, embedding_type, imatrix. The report is JSON.
func ExportModel(ctx context.Context, in, out string, options Options, progress func(done float64)) (report string, err error) {
	if err := noNUL("path", in+out); err != nil {
		return "", err
	}
	return export(ctx, options, progress, func(o uintptr, made *uintptr) uintptr {
		return raw.Tsr_export_new(0, in, out, o, made)
	})
}

// Export writes a model in memory as ExportModel does its file; nobody must write to it meanwhile.
func (m *Model) Export(ctx context.Context, out string, options Options, progress func(done float64)) (report string, err error) {
	if err := noNUL("path", out); err != nil {
		return "", err
	}
	c, release := (*handle)(m).use()
	defer release()
	return export(ctx, options, progress, func(o uintptr, made *uintptr) uintptr {
		return raw.Tsr_export_new_for_model(0, c, out, o, made)
	})
}

func export(ctx context.Context, options Options, progress func(done float64), begin func(o uintptr, made *uintptr) uintptr) (report string, err error) {
	export, err := holdWith(raw.Tsr_export_free, options, begin)
	if err != nil {
		return "", err
	}
	defer export.close()
	if err := work(ctx, export, raw.Tsr_export_step, progress); err != nil {
		return "", err
	}
	c, done := export.use()
	defer done()
	return text(func(made *uintptr) uintptr { return raw.Tsr_export_finish(c, made) })
}

// ConvertModel writes the model's file `in` as the .tsr file `out`, a slice of a tensor at a time, however large it is.
// After an error, or if the context ends, `out` is unchanged. Options: compress, verify, and to quantise type, pure,
// output_type, embedding_type, imatrix, threads. The report is JSON: what was read and what was written.
func ConvertModel(ctx context.Context, in, out string, options Options, progress func(done float64)) (report string, err error) {
	if err := noNUL("path", in+out); err != nil {
		return "", err
	}
	conversion, err := holdWith(raw.Tsr_conversion_free, options, func(o uintptr, made *uintptr) uintptr {
		return raw.Tsr_conversion_new(0, in, out, o, made)
	})
	if err != nil {
		return "", err
	}
	defer conversion.close()
	if err := work(ctx, conversion, raw.Tsr_conversion_step, progress); err != nil {
		return "", err
	}
	c, done := conversion.use()
	defer done()
	return text(func(made *uintptr) uintptr { return raw.Tsr_conversion_finish(c, made) })
}
