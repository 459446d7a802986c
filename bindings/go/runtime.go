package tessera

import (
	"unsafe"

	"tessera.dev/tessera/raw"
)

// Runtime holds backends, threads and the log. Options: threads, plugin_path, profile, log_level, log_capacity. Any
// goroutine.
type Runtime handle

// NewRuntime makes a runtime; nil options are all defaults.
func NewRuntime(options Options) (*Runtime, error) {
	h, err := holdWith(raw.Tsr_runtime_free, options, raw.Tsr_runtime_new)
	return (*Runtime)(h), err
}

// Hooks are functions of the program that replace the library's, or are notified. Each may be nil; Allocate and Deallocate
// are both set or both nil. They are called from any thread, concurrently; they may not call this package, nor
// runtime.Goexit. A panic in Allocate is a failed allocation, in the others it has no effect.
type Hooks struct {
	// Allocate is memory of arenas on CPU devices, of C or a mapping, of any content, aligned to a power of two; nil where
	// there is none.
	Allocate func(bytes, alignment uintptr) unsafe.Pointer
	// Deallocate takes it back.
	Deallocate func(memory unsafe.Pointer, bytes uintptr)
	// ThreadStarted is the first that a thread which computes does, on that thread, so that it can be pinned; the roles are
	// those of tsr_hooks.
	ThreadStarted func(role string, number int32)
}

// NewRuntimeWithHooks is NewRuntime with hooks.
func NewRuntimeWithHooks(options Options, hooks Hooks) (*Runtime, error) {
	h, err := holdWith(raw.Tsr_runtime_free, options, func(o uintptr, out *uintptr) uintptr {
		return raw.Tsr_raw_runtime_new_with_hooks(o, hooks.Allocate, hooks.Deallocate, hooks.ThreadStarted, out)
	})
	return (*Runtime)(h), err
}

// Close frees it; see the package.
func (r *Runtime) Close() { (*handle)(r).close() }

// Backends is a JSON report of the devices here, and why others are unavailable.
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

// SetLog passes each record of the log to a function as it is made, in addition to the queue of NextLog; nil ends that. It is called by
// one goroutine at a time, must return soon, and may not call SetLog of this runtime; a panic in it is nothing. When SetLog
// returns the function set before is not called any more.
func (r *Runtime) SetLog(log func(LogRecord)) error {
	if log == nil {
		return (*handle)(r).call(func(c uintptr) uintptr { return raw.Tsr_raw_runtime_set_log(c, nil) })
	}
	return (*handle)(r).call(func(c uintptr) uintptr {
		return raw.Tsr_raw_runtime_set_log(c, func(level int32, text string) { log(LogRecord{LogLevel(level), text}) })
	})
}

// SetShare shares the cores between inference and training by turns: option inference_share, from 0 to 1, is inference's share while
// both have work. Nil options end that. A step of inference waits for one micro-batch of training at most. Results are the same bits.
func (r *Runtime) SetShare(options Options) error {
	c, done := (*handle)(r).use()
	defer done()
	return options.with(func(o uintptr) uintptr { return raw.Tsr_runtime_set_share(c, o) })
}

// JoinShare makes what is made later with this runtime take turns with that of another one: one share for both.
func (r *Runtime) JoinShare(other *Runtime) error {
	o, done := (*handle)(other).use()
	defer done()
	return (*handle)(r).call(func(c uintptr) uintptr { return raw.Tsr_runtime_join_share(c, o) })
}

// Share is a JSON report of the turns of both sides: inference_share, and turns, seconds and cpu_seconds of inference and training.
func (r *Runtime) Share() (string, error) { return (*handle)(r).text(raw.Tsr_runtime_share) }

// World is JSON: the number of this process and how many run together, and of their machines (option processes).
func (r *Runtime) World() (string, error) { return (*handle)(r).text(raw.Tsr_runtime_world) }

// Cancel ends calls in progress on other goroutines that plan, load or measure with this runtime (NewTrainer,
// NewGenerator, ...) with an Error of code Cancelled. The constructors that take a context call it when the context ends: it
// ends what others construct with the same runtime at that moment too.
func (r *Runtime) Cancel() {
	c, done := (*handle)(r).use()
	defer done()
	raw.Tsr_runtime_cancel(c)
}
