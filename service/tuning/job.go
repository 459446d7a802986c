package tuning

import "context"

// Status is where a job is.
type Status string

// The statuses. Paused, queued and running jobs may be cancelled; queued and running ones paused.
const (
	Validating Status = "validating_files"
	Queued     Status = "queued"
	Running    Status = "running"
	Paused     Status = "paused"
	Succeeded  Status = "succeeded"
	Failed     Status = "failed"
	Cancelled  Status = "cancelled"
)

// Ended says whether the status is final.
func (s Status) Ended() bool { return s == Succeeded || s == Failed || s == Cancelled }

// Methods of training.
const (
	Supervised = "supervised"
	Preference = "dpo"
)

// Hyperparameters are the values that the request asks for; 0 stands for auto.
type Hyperparameters struct {
	Epochs     int64   `json:"epochs,omitempty"`
	Batch      int64   `json:"batch,omitempty"`
	Multiplier float64 `json:"multiplier,omitempty"` // of the learning rate
	Beta       float64 `json:"beta,omitempty"`
}

// Settings are the settings beyond OpenAI's request; 0 stands for the service's default.
type Settings struct {
	Rank    int64   `json:"rank,omitempty"` // of adapters
	Alpha   float64 `json:"alpha,omitempty"`
	Context int64   `json:"context,omitempty"` // most tokens of an example
	Rate    float64 `json:"rate,omitempty"`    // the learning rate that the multiplier is of
	Full    bool    `json:"full,omitempty"`    // all weights train, and the result is a model's file
}

// Order is the request for a job.
type Order struct {
	Tenant          string            `json:"tenant"`
	Model           string            `json:"model"`
	TrainingFile    string            `json:"training_file"`
	ValidationFile  string            `json:"validation_file,omitempty"`
	Suffix          string            `json:"suffix,omitempty"`
	Seed            int64             `json:"seed"`
	Method          string            `json:"method"`
	Hyperparameters Hyperparameters   `json:"hyperparameters"`
	Settings        Settings          `json:"settings"`
	Metadata        map[string]string `json:"metadata,omitempty"`
	Memory          int64             `json:"memory,omitempty"` // bytes at most; 0: any
}

// Plan is what auto became, once the files are checked. A job that goes on after a restart has the same plan.
type Plan struct {
	Epochs        int64   `json:"epochs"`
	Batch         int64   `json:"batch"`
	Steps         int64   `json:"steps"`
	StepsPerEpoch int64   `json:"steps_per_epoch"`
	Context       int64   `json:"context"` // tokens of a row
	Rate          float64 `json:"rate"`
	Multiplier    float64 `json:"multiplier"`
	Beta          float64 `json:"beta,omitempty"`
	Rank          int64   `json:"rank,omitempty"`
	Alpha         float64 `json:"alpha,omitempty"`
	Examples      int64   `json:"examples"`
	Held          int64   `json:"held,omitempty"`    // examples of the validation file
	Tokens        int64   `json:"tokens"`            // of the training file
	Cut           int64   `json:"cut,omitempty"`     // examples that are longer than a row
	Dropped       int64   `json:"dropped,omitempty"` // examples that teach nothing
}

// Failure is why a job failed.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Param   string `json:"param,omitempty"`
}

func (f *Failure) Error() string { return f.Message }

// Job is a training.
type Job struct {
	ID string
	Order
	Status        Status
	Created       int64 // seconds since 1970
	Started       int64 // of its first step; 0 before
	Finished      int64 // 0 while it goes on
	Estimated     int64 // when it is likely to finish; 0: unknown
	Plan          *Plan // nil until the files are checked
	Result        string
	ResultFile    string
	TrainedTokens int64
	Failure       *Failure
}

// Event tells what happened to a job.
type Event struct {
	ID      string
	Created int64
	Level   string // info, warn, error
	Kind    string // message, metrics
	Message string
	Data    []byte // a JSON object, or nil
	Step    int64  // of metrics
}

// Measures are the measurements of a step; NaN where there is none.
type Measures struct {
	Step          int64
	Loss          float64
	Accuracy      float64
	ValidLoss     float64
	ValidAccuracy float64
}

// Checkpoint is a model of an epoch's end.
type Checkpoint struct {
	ID      string
	Job     string
	Created int64
	Model   string // the name that it is served by
	Measures
}

// JobQuery selects jobs.
type JobQuery struct {
	Page
	Metadata     map[string]string // all of these
	NullMetadata bool              // those without metadata
}

// Jobs makes trainings. A tenant sees only its own.
type Jobs interface {
	Create(ctx context.Context, order Order, once Once) (Job, error)
	Jobs(ctx context.Context, tenant string, query JobQuery) (jobs []Job, more bool, err error)
	Job(ctx context.Context, tenant, id string) (Job, error)
	Events(ctx context.Context, tenant, id string, page Page) (events []Event, more bool, err error)
	Checkpoints(ctx context.Context, tenant, id string, page Page) (checkpoints []Checkpoint, more bool, err error)
	Cancel(ctx context.Context, tenant, id string) (Job, error)
	Pause(ctx context.Context, tenant, id string) (Job, error)
	Resume(ctx context.Context, tenant, id string) (Job, error)
}
