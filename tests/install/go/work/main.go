// Long work from Go: its progress rises to 1, a conversion writes the file that it says, and what a context ends leaves
// nothing. Arguments: a model, a path to write.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tessera.dev/tessera"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func wanted(what string, found, wanted any) {
	if found != wanted {
		check(fmt.Errorf("%s: found %v, wanted %v", what, found, wanted))
	}
}

func main() {
	in, out := os.Args[1], os.Args[2]
	last := 0.0
	progress := func(done float64) {
		wanted("progress rises", done >= last && done <= 1, true)
		last = done
	}
	report, err := tessera.ConvertModel(context.Background(), in, out, tessera.Options{"verify": true}, progress)
	check(err)
	wanted("progress of a conversion", last, 1.0)
	about, err := os.Stat(out)
	check(err)
	wanted("size in the report", strings.Contains(report, fmt.Sprintf(`"out":{"format":"tsr","bytes":%d,`, about.Size())), true)
	last = 0
	model, err := tessera.LoadModelContext(context.Background(), out, tessera.Options{"verify": true}, progress)
	check(err)
	wanted("progress of a loading", last, 1.0)
	info, err := model.Info()
	check(err)
	original, err := tessera.LoadModel(in)
	check(err)
	originalInfo, err := original.Info()
	check(err)
	wanted("the model loaded", strings.ReplaceAll(info, filepath.Base(out), filepath.Base(in)), originalInfo)

	check(os.Remove(out))
	ctx, cancel := context.WithCancel(context.Background())
	_, err = tessera.ConvertModel(ctx, in, out, nil, func(float64) { cancel() })
	wanted("cancelled conversion", errors.Is(err, context.Canceled), true)
	_, err = tessera.LoadModelContext(ctx, in, nil, nil)
	wanted("cancelled loading", errors.Is(err, context.Canceled), true)
	_, err = os.Stat(out)
	wanted("nothing is left", os.IsNotExist(err), true)
	report, err = tessera.ConvertModel(context.Background(), in, out, tessera.Options{"type": "q8_0"}, nil)
	check(err)
	wanted("a quantised file", strings.Contains(report, `"quantization":{"type":"q8_0",`), true)
	check(os.Remove(out))
	report, err = original.Quantize(out, tessera.Options{"type": "q4_0"})
	check(err)
	wanted("a quantised model", strings.Contains(report, `"type":"q4_0"`), true)
	check(os.Remove(out))
	_, err = original.Quantize(out, tessera.Options{"type": "q4_km"})
	wanted("an unknown type", err != nil && strings.Contains(err.Error(), "unknown type 'q4_km'"), true)
	runtime, err := tessera.NewRuntime(nil)
	check(err)
	ids := make([]int32, 100)
	last = 0
	matrix := out + ".gguf"
	report, err = tessera.WriteImatrix(context.Background(), runtime, original, ids, matrix, tessera.Options{"seq": 32}, progress)
	check(err)
	wanted("progress of an importance matrix", last, 1.0)
	wanted("windows of an importance matrix", strings.Contains(report, `"windows":3,`), true)
	check(os.Remove(matrix))
	_, err = tessera.ConvertModel(context.Background(), in, in, nil, nil)
	wanted("onto itself", err != nil && strings.Contains(err.Error(), "is where the model is read from"), true)
}
