package api_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tessera.dev/tessera"
)

func contents(t *testing.T, path string) []byte {
	t.Helper()
	found, err := os.ReadFile(path)
	return must(t, found, err)
}

// rising wants progress that does not fall, to 1.
func rising(t *testing.T) (progress func(float64), ended func()) {
	last := 0.0
	return func(done float64) {
			wanted(t, "progress", done >= last && done <= 1, true)
			last = done
		}, func() {
			t.Helper()
			wanted(t, "progress at the end", last, 1)
			last = 0
		}
}

func Test_long_work_is_the_same_in_steps_and_ends_with_its_context(t *testing.T) {
	r, model, ctx := newRuntime(t), newModel(t), context.Background()
	stopped, stop := context.WithCancel(ctx)
	stop()
	cancelled := func(err error) {
		t.Helper()
		wanted(t, "a context that has ended", errors.Is(err, context.Canceled), true)
	}
	progress, ended := rising(t)
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	tokenizer := must2(model.Tokenizer())
	sizes := tessera.Options{"seq": 16}
	data := must2(tessera.NewDataset(prose, tokenizer, sizes))

	stepped := must2(tessera.NewDatasetContext(ctx, prose, tokenizer, sizes, progress))
	ended()
	wanted(t, "a text", must2(stepped.Info()), must2(data.Info()))
	check(t, os.WriteFile(path("text"), []byte(prose), 0o644))
	stepped = must2(tessera.OpenDatasetContext(ctx, path("text"), tokenizer, sizes, progress))
	ended()
	wanted(t, "a file", must2(stepped.Info()), must2(data.Info()))
	cancelled(second(tessera.NewDatasetContext(stopped, prose, tokenizer, sizes, nil)))
	refused(t, second(tessera.OpenDatasetContext(ctx, path("nothing"), tokenizer, sizes, nil)), tessera.ErrNotFound, "nothing")

	options := tessera.Options{"devices": "cpu:2", "parallel": "dp=2", "batch": 4}
	plan := must2(tessera.NewPlanContext(ctx, r, model, options, progress))
	ended()
	wanted(t, "a plan", must2(plan.Text()), must2(must2(tessera.NewPlan(r, model, options)).Text()))
	cancelled(second(tessera.NewPlanContext(stopped, r, model, options, nil)))
	devices, graph := must2(tessera.OpenDevices(r, "cpu:2")), must2(model.Graph())
	ofGraph := tessera.Options{"symbols": "T=16", "batch": 4}
	plan = must2(tessera.NewPlanForGraphContext(ctx, devices, graph, ofGraph, progress))
	ended()
	wanted(t, "of a graph", must2(plan.Text()), must2(must2(tessera.NewPlanForGraph(devices, graph, ofGraph)).Text()))

	trainer := must2(tessera.NewTrainer(r, model, data, options))
	must2(trainer.Step())
	check(t, trainer.SaveModel(model, path("a.tsr"), nil))
	report := must2(trainer.SaveModelContext(ctx, model, path("b.tsr"), nil, progress))
	ended()
	wanted(t, "a trained model", bytes.Equal(contents(t, path("a.tsr")), contents(t, path("b.tsr"))), true)
	wanted(t, "its report", strings.Contains(report, `"in":{"format":"memory"`), true)
	check(t, model.Save(path("c.tsr")))
	must2(model.SaveContext(ctx, path("d.tsr"), nil, progress))
	ended()
	wanted(t, "a model", bytes.Equal(contents(t, path("c.tsr")), contents(t, path("d.tsr"))), true)
	check(t, trainer.SaveContext(ctx, path("checkpoint"), progress))
	ended()
	cancelled(trainer.SaveContext(stopped, path("never"), nil))
	cancelled(second(trainer.SaveModelContext(stopped, model, path("never.tsr"), nil, nil)))
	for _, name := range []string{"never", "never.tsr"} {
		_, err := os.Stat(path(name))
		wanted(t, "nothing is left", os.IsNotExist(err), true)
	}
	refused(t, second(trainer.EvaluateAll(ctx)), tessera.ErrFailedPrecondition, "eval_fraction")
	saving := must2(trainer.StartSave(path("noted"), tessera.Options{"best_loss": 0.5}))
	loss := must2(trainer.Step()).Loss // free again, and meanwhile
	check(t, saving.Finish(ctx, progress))
	ended()
	saving.Close()
	wanted(t, "its notes", strings.Contains(must2(tessera.CheckpointInfo(path("noted"))), `"notes":{"best_loss":"0.5"}`), true)
	resumed := must2(tessera.NewTrainer(r, model, data, options))
	check(t, resumed.Resume(path("checkpoint")))
	wanted(t, "the loss after", must2(resumed.Step()).Loss, loss)
}
