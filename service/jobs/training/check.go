package training

import (
	"context"
	"fmt"
	"sort"
	"strings"

	"tessera.dev/service/jobs"
	"tessera.dev/service/tuning"
	"tessera.dev/tessera"
)

// Choices where a job says auto. Rates are those of adapters and of all weights.
const (
	autoEpochs         = 3
	autoBeta           = 0.1
	supervisedRate     = 2e-4
	supervisedFullRate = 2e-5
	preferenceRate     = 5e-6
	preferenceFullRate = 5e-7
	leastAutoBatch     = 8
	mostBatch          = 256
	contextMultiple    = 16 // rows are as long as the longest example, rounded up
)

// Check reads the files as the training will, and decides what auto stands for.
func (r *Runner) Check(ctx context.Context, task jobs.Task) (plan tuning.Plan, notes []string, err error) {
	model, tokenizer, template, err := open(task)
	if err != nil {
		return plan, nil, err
	}
	defer model.Close()
	most := r.config.Context
	if task.Settings.Context > 0 {
		most = task.Settings.Context
	}
	if known := contextOf(model); known > 0 && known < most {
		most = known
	}
	if err := checkSettings(task, r.config.MostRank); err != nil {
		return plan, nil, err
	}
	data, err := tessera.OpenDatasetContext(ctx, task.Training, tokenizer, dataOptions(task, template, most), nil)
	if err != nil {
		return plan, nil, said(err, task, "invalid_training_file", "training_file")
	}
	defer data.Close()
	info, err := infoOf(data)
	if err != nil {
		return plan, nil, err
	}
	if err := checkKinds(task, info); err != nil {
		return plan, nil, err
	}
	return r.plan(task, info, most), notesOf(info, most), nil
}

// checkSettings refuses adapters that would not be served, and settings of new adapters where there are some.
func checkSettings(task jobs.Task, mostRank int64) error {
	settings := task.Settings
	if mostRank > 0 && settings.Rank > mostRank {
		return &tuning.Failure{Code: "invalid_value", Param: "tessera.rank",
			Message: fmt.Sprintf("'tessera.rank' is %d; this service serves adapters of rank %d at most", settings.Rank, mostRank)}
	}
	if task.Source.Adapter != "" && (settings.Full || settings.Rank != 0 || settings.Alpha != 0) {
		return &tuning.Failure{Code: "invalid_value", Param: "tessera",
			Message: fmt.Sprintf("model %s is an adapter, which trains as it is: leave out full, rank and alpha, or train %s", task.Model,
				task.Source.Base)}
	}
	return nil
}

// checkKinds refuses rows that the method does not learn from.
func checkKinds(task jobs.Task, info dataInfo) error {
	var kinds []string
	for kind := range info.Kinds {
		kinds = append(kinds, kind)
	}
	sort.Strings(kinds)
	found := strings.Join(kinds, ", ")
	if task.Method == tuning.Preference {
		if found != "preference" {
			return &tuning.Failure{Code: "invalid_training_file", Param: "training_file",
				Message: fmt.Sprintf("file %s has rows of kind %s; the method dpo wants preferences: input, preferred_output and "+
					"non_preferred_output", task.TrainingFile, found)}
		}
		return nil
	}
	for _, kind := range kinds {
		if kind == "preference" || kind == "unpaired" || kind == "prompt" {
			return &tuning.Failure{Code: "invalid_training_file", Param: "training_file",
				Message: fmt.Sprintf("file %s has rows of kind %s; the method supervised wants messages, or prompts with completions",
					task.TrainingFile, kind)}
		}
	}
	return nil
}

func notesOf(info dataInfo, most int64) (notes []string) {
	if info.Truncated > 0 {
		notes = append(notes, fmt.Sprintf("%d examples have more than %d tokens, and are cut there", info.Truncated, most))
	}
	if info.Untrained > 0 {
		notes = append(notes, fmt.Sprintf("%d examples have nothing to learn, and are left out", info.Untrained))
	}
	if len(info.Ignored) > 0 {
		notes = append(notes, "members of rows that change nothing: "+strings.Join(info.Ignored, ", "))
	}
	if info.Note != "" {
		notes = append(notes, info.Note)
	}
	return notes
}

func (r *Runner) plan(task jobs.Task, info dataInfo, most int64) tuning.Plan {
	asked := task.Hyperparameters
	plan := tuning.Plan{Epochs: asked.Epochs, Batch: asked.Batch, Multiplier: asked.Multiplier, Beta: asked.Beta, Examples: info.Train,
		Held: info.Held, Tokens: info.Tokens, Cut: info.Truncated, Dropped: info.Untrained, Rate: task.Settings.Rate}
	if plan.Epochs == 0 {
		plan.Epochs = autoEpochs
	}
	if plan.Batch == 0 { // a fifth of a per cent of the examples, as OpenAI's service has it, but not one by one
		plan.Batch = clamp(info.Train/500, leastAutoBatch, mostBatch)
	}
	plan.Batch = clamp(plan.Batch, 1, info.Train)
	if plan.Multiplier == 0 {
		plan.Multiplier = 1
	}
	if task.Method == tuning.Preference && plan.Beta == 0 {
		plan.Beta = autoBeta
	}
	if plan.Rate == 0 {
		plan.Rate = baseRate(task)
	}
	if !task.Settings.Full && task.Source.Adapter == "" {
		if plan.Rank = task.Settings.Rank; plan.Rank == 0 {
			plan.Rank = r.config.Rank
		}
		if plan.Alpha = task.Settings.Alpha; plan.Alpha == 0 {
			plan.Alpha = float64(2 * plan.Rank)
		}
	}
	plan.StepsPerEpoch = (plan.Examples + plan.Batch - 1) / plan.Batch
	plan.Steps = (plan.Examples*plan.Epochs + plan.Batch - 1) / plan.Batch
	plan.Context = clamp((info.Longest+contextMultiple-1)/contextMultiple*contextMultiple, 1, most)
	return plan
}

func baseRate(task jobs.Task) float64 {
	rates := map[string][2]float64{tuning.Supervised: {supervisedRate, supervisedFullRate}, tuning.Preference: {preferenceRate, preferenceFullRate}}
	if task.Settings.Full {
		return rates[task.Method][1]
	}
	return rates[task.Method][0]
}

func clamp(value, least, most int64) int64 {
	if value < least {
		value = least
	}
	if value > most {
		value = most
	}
	return value
}
