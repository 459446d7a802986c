package tessera

import "tessera.dev/tessera/raw"

// Runtime holds backends, threads and the log. Options: threads, plugin_path, profile, log_level, log_capacity. Any
// goroutine.
type Runtime handle

// NewRuntime makes a runtime; nil options are all defaults.
func NewRuntime(options Options) (*Runtime, error) {
	h, err := holdWith(raw.Tsr_runtime_free, options, raw.Tsr_runtime_new)
	return (*Runtime)(h), err
}

// Close frees it; see the package.
func (r *Runtime) Close() { (*handle)(r).close() }

// Backends is a JSON report of what can be used here and, where something cannot, why.
func (r *Runtime) Backends() (string, error) { return (*handle)(r).text(raw.Tsr_runtime_backends) }

// LogLevel is the severity of a log record.
type LogLevel int32

const (
	LogDebug   LogLevel = 0
	LogInfo    LogLevel = 1
	LogWarning LogLevel = 2
	LogError   LogLevel = 3
)

// String is the level as option log_level has it.
func (l LogLevel) String() string {
	if l < LogDebug || l > LogError {
		return "unknown"
	}
	return [...]string{"debug", "info", "warning", "error"}[l]
}

// LogRecord is one line of a runtime's log.
type LogRecord struct {
	Level   LogLevel
	Message string
}

// NextLog takes the oldest record from the log; false where there is none.
func (r *Runtime) NextLog() (LogRecord, bool, error) {
	c, done := (*handle)(r).use()
	defer done()
	var level int32
	message, found, err := shortText(func(buffer []byte, size *uint64) uintptr {
		return raw.Tsr_runtime_next_log(c, &level, buffer, size)
	})
	return LogRecord{LogLevel(level), message}, found, err
}

// Logs takes all records from the log, the oldest first.
func (r *Runtime) Logs() ([]LogRecord, error) {
	var all []LogRecord
	for {
		record, found, err := r.NextLog()
		if err != nil || !found {
			return all, err
		}
		all = append(all, record)
	}
}

// Cancel ends calls in progress on other goroutines that plan, load or measure with this runtime (NewTrainer,
// NewGenerator, ...) with an Error of code Cancelled. The constructors that take a context call it when the context ends: it
// ends what others construct with the same runtime at that moment too.
func (r *Runtime) Cancel() {
	c, done := (*handle)(r).use()
	defer done()
	raw.Tsr_runtime_cancel(c)
}
