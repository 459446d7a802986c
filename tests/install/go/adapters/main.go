// Adapters from Go: new ones go out as PEFT's folder, come back over the base, and merge. Arguments: a model, a folder to
// write.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"tessera.dev/tessera"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func has(model *tessera.Model, part string) {
	info, err := model.Info()
	check(err)
	if !strings.Contains(info, part) {
		check(fmt.Errorf("no %s in %s", part, info))
	}
}

func main() {
	base, err := tessera.LoadModel(os.Args[1])
	check(err)
	adapted, err := base.WithAdapters(tessera.Options{"rank": 2, "alpha": 3.0, "dora": true})
	check(err)
	has(adapted, `"adapters":{"rank":2,"alpha":3.0,`)
	_, err = adapted.Export(context.Background(), os.Args[2], tessera.Options{"format": "peft"}, nil)
	check(err)
	principal, err := base.WithAdapters(tessera.Options{"rank": 2, "on": "q_proj", "layers": "0", "init": "pissa", "dropout": 0.1})
	check(err)
	has(principal, `"init":"pissa","dropout":"0.1"`)
	runtime, err := tessera.NewRuntime(nil)
	check(err)
	report, err := tessera.PlanMethods(context.Background(), runtime, base, nil, tessera.Options{"batch": 1}, tessera.Options{"rank": 2})
	check(err)
	if !strings.HasPrefix(report, `{"method":"full",`) {
		check(fmt.Errorf("methods: %s", report))
	}
	low, err := base.ForMethod("lora", tessera.Options{"rank": 2})
	check(err)
	has(low, `"adapters":{"rank":2,`)
	again, err := base.LoadAdapters(os.Args[2], nil)
	check(err)
	has(again, `"adapters":{"rank":2,"alpha":3.0,`)
	merged, err := again.MergeAdapters()
	check(err)
	has(merged, `"adapters":null`)
	if _, err = merged.MergeAdapters(); err == nil {
		check(fmt.Errorf("a model without adapters was merged"))
	}
}
