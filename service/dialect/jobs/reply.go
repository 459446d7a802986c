package jobs

import (
	"encoding/json"
	"math"

	"tessera.dev/service/tuning"
)

// hyperparameters are numbers, or "auto" until the files are checked.
type hyperparameters struct {
	Epochs     any `json:"n_epochs"`
	Batch      any `json:"batch_size"`
	Multiplier any `json:"learning_rate_multiplier"`
	Beta       any `json:"beta,omitempty"`
}

type method struct {
	Type       string     `json:"type"`
	Supervised *variables `json:"supervised,omitempty"`
	Preference *variables `json:"dpo,omitempty"`
}

type variables struct {
	Hyperparameters hyperparameters `json:"hyperparameters"`
}

type failure struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
}

// object is a job on the wire.
type object struct {
	Object          string            `json:"object"`
	ID              string            `json:"id"`
	Model           string            `json:"model"`
	Created         int64             `json:"created_at"`
	Finished        *int64            `json:"finished_at"`
	Result          *string           `json:"fine_tuned_model"`
	Organization    string            `json:"organization_id"`
	ResultFiles     []string          `json:"result_files"`
	Status          tuning.Status     `json:"status"`
	TrainingFile    string            `json:"training_file"`
	ValidationFile  *string           `json:"validation_file"`
	Hyperparameters hyperparameters   `json:"hyperparameters"`
	TrainedTokens   *int64            `json:"trained_tokens"`
	Error           *failure          `json:"error"`
	Suffix          *string           `json:"user_provided_suffix"`
	Seed            int64             `json:"seed"`
	Estimated       *int64            `json:"estimated_finish"`
	Integrations    []struct{}        `json:"integrations"`
	Metadata        map[string]string `json:"metadata"`
	Method          method            `json:"method"`
	Tessera         extension         `json:"tessera"`
}

// extension is what OpenAI's API lacks.
type extension struct {
	Rank     *int64   `json:"rank"`
	Alpha    *float64 `json:"alpha"`
	Context  *int64   `json:"context"`
	Rate     *float64 `json:"learning_rate"`
	Full     bool     `json:"full"`
	Steps    *int64   `json:"steps"`
	Examples *int64   `json:"examples"`
}

func newObject(job tuning.Job) object {
	made := object{Object: "fine_tuning.job", ID: job.ID, Model: job.Model, Created: job.Created, Finished: orNull(job.Finished),
		Result: textOrNull(job.Result), Organization: "org-" + job.Tenant, ResultFiles: []string{}, Status: job.Status,
		TrainingFile: job.TrainingFile, ValidationFile: textOrNull(job.ValidationFile), TrainedTokens: orNull(job.TrainedTokens),
		Suffix: textOrNull(job.Suffix), Seed: job.Seed, Estimated: orNull(job.Estimated), Integrations: []struct{}{}, Metadata: job.Metadata,
		Method: method{Type: job.Method}, Tessera: extension{Full: job.Settings.Full}}
	if job.Tenant == "" {
		made.Organization = "org-local"
	}
	if job.ResultFile != "" {
		made.ResultFiles = append(made.ResultFiles, job.ResultFile)
	}
	if job.Failure != nil {
		made.Error = &failure{job.Failure.Code, job.Failure.Message, textOrNull(job.Failure.Param)}
	}
	asked := job.Hyperparameters
	numbers := hyperparameters{Epochs: orAuto(asked.Epochs), Batch: orAuto(asked.Batch), Multiplier: orAuto(asked.Multiplier)}
	beta := orAuto(asked.Beta)
	if plan := job.Plan; plan != nil {
		numbers = hyperparameters{Epochs: plan.Epochs, Batch: plan.Batch, Multiplier: plan.Multiplier}
		beta = plan.Beta
		made.Tessera = extension{orNull(plan.Rank), orNull(plan.Alpha), orNull(plan.Context), orNull(plan.Rate), job.Settings.Full,
			orNull(plan.Steps), orNull(plan.Examples)}
	}
	made.Hyperparameters = numbers
	if job.Method == tuning.Preference {
		numbers.Beta = beta
		made.Method.Preference = &variables{numbers}
	} else {
		made.Method.Supervised = &variables{numbers}
	}
	return made
}

func orAuto[T int64 | float64](value T) any {
	if value == 0 {
		return "auto"
	}
	return value
}

func orNull[T int64 | float64](value T) *T {
	if value == 0 {
		return nil
	}
	return &value
}

func textOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

type event struct {
	Object  string          `json:"object"`
	ID      string          `json:"id"`
	Created int64           `json:"created_at"`
	Level   string          `json:"level"`
	Message string          `json:"message"`
	Type    string          `json:"type"`
	Data    json.RawMessage `json:"data"`
}

func newEvent(given tuning.Event) event {
	made := event{"fine_tuning.job.event", given.ID, given.Created, given.Level, given.Message, given.Kind, given.Data}
	if made.Data == nil {
		made.Data = json.RawMessage("{}")
	}
	return made
}

type checkpoint struct {
	Object  string  `json:"object"`
	ID      string  `json:"id"`
	Created int64   `json:"created_at"`
	Model   string  `json:"fine_tuned_model_checkpoint"`
	Job     string  `json:"fine_tuning_job_id"`
	Step    int64   `json:"step_number"`
	Metrics metrics `json:"metrics"`
}

type metrics struct {
	Step              int64    `json:"step"`
	Loss              *float64 `json:"train_loss"`
	Accuracy          *float64 `json:"train_mean_token_accuracy"`
	ValidLoss         *float64 `json:"valid_loss"`
	ValidAccuracy     *float64 `json:"valid_mean_token_accuracy"`
	FullValidLoss     *float64 `json:"full_valid_loss"`
	FullValidAccuracy *float64 `json:"full_valid_mean_token_accuracy"`
}

// finite is null where a number is unknown. A held-out loss is always of all rows.
func finite(value float64) *float64 {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return nil
	}
	return &value
}

func newCheckpoint(given tuning.Checkpoint) checkpoint {
	return checkpoint{"fine_tuning.job.checkpoint", given.ID, given.Created, given.Model, given.Job, given.Step,
		metrics{given.Step, finite(given.Loss), finite(given.Accuracy), finite(given.ValidLoss), finite(given.ValidAccuracy),
			finite(given.ValidLoss), finite(given.ValidAccuracy)}}
}
