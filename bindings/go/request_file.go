package tessera

import (
	"context"

	"tessera.dev/tessera/raw"
)

// GenerateFile generates what the lines of the file in ask for, each a JSON object such as {"prompt": "Once"}, into the file out with a
// line of results for each. fileOptions: adapters, ids, json_schema, regex, grammar, as the header lists them under
// tsr_request_file_open; options: those of NewEngine. Failed lines have their error in their results, and are counted in the report, which is
// JSON. progress, which may be nil, hears the share that is done; if the context ends before that, what is done stays in out + ".part".
func GenerateFile(ctx context.Context, r *Runtime, model *Model, in, out string, fileOptions, options Options, progress func(done float64)) (string, error) {
	if err := noNUL("path", in, out); err != nil {
		return "", err
	}
	c, release := (*handle)(r).use()
	defer release()
	m, releaseModel := (*handle)(model).use()
	defer releaseModel()
	h, err := holdWith(raw.Tsr_request_file_free, fileOptions, func(o uintptr, made *uintptr) uintptr {
		return raw.Tsr_request_file_open(in, out, o, made)
	})
	if err != nil {
		return "", err
	}
	defer h.close()
	file, releaseFile := h.use()
	defer releaseFile()
	err = until(ctx, r.Cancel, func() error {
		return options.with(func(o uintptr) uintptr { return raw.Tsr_request_file_start(file, c, m, o) })
	})
	if err != nil {
		return "", err
	}
	if err := shares(ctx, func() {}, file, raw.Tsr_request_file_step, progress); err != nil {
		return "", err
	}
	return h.text(raw.Tsr_request_file_report)
}
