package tessera

import (
	"context"
	"strings"

	"tessera.dev/tessera/raw"
)

// Program is what plans come to: per device a fixed arena and a list of instructions. Immutable; any goroutine.
type Program handle

// Entry is a graph that a program can run, by a plan of it.
type Entry struct {
	Name  string
	Graph *Graph
	Plan  *Plan
}

// NewProgram makes a program; its entries share parameters and state by name.
func NewProgram(devices *Devices, entries ...Entry) (*Program, error) {
	var names strings.Builder
	graphs, plans := make([]int64, len(entries)), make([]int64, len(entries))
	for i, entry := range entries {
		if err := noNUL("entry", entry.Name); err != nil {
			return nil, err
		}
		names.WriteString(entry.Name)
		names.WriteByte(0)
		graph, graphDone := (*handle)(entry.Graph).use()
		defer graphDone()
		plan, planDone := (*handle)(entry.Plan).use()
		defer planDone()
		graphs[i], plans[i] = int64(graph), int64(plan)
	}
	h, err := (*handle)(devices).hold(raw.Tsr_program_free, func(c uintptr, out *uintptr) uintptr {
		return raw.Tsr_raw_program_new(c, names.String(), graphs, plans, out)
	})
	return (*Program)(h), err
}

// Close frees it; see the package.
func (p *Program) Close() { (*handle)(p).close() }

// Info is JSON: a fingerprint, bytes of each device, entries.
func (p *Program) Info() (string, error) { return (*handle)(p).text(raw.Tsr_program_info) }

// Print is the instructions of a rank, as text.
func (p *Program) Print(rank int) (string, error) {
	return (*handle)(p).text(func(c uintptr, out *uintptr) uintptr { return raw.Tsr_program_print(c, rank, out) })
}

// Session is a program in memory, with state of its own. One goroutine at a time.
type Session handle

// NewSession prepares the devices. Options: measure_memory, trace, offload_folder, host_memory_limit, watchdog.
func NewSession(program *Program, options Options) (*Session, error) {
	h, err := (*handle)(program).holdWith(raw.Tsr_session_free, options, raw.Tsr_session_new)
	return (*Session)(h), err
}

// Close frees it; see the package.
func (s *Session) Close() { (*handle)(s).close() }

// Write sets a parameter, constant or state; the values are copied.
func (s *Session) Write(name string, value *Tensor) error {
	if err := noNUL("name", name); err != nil {
		return err
	}
	return s.with(value, func(c, t uintptr) uintptr { return raw.Tsr_session_write(c, name, t) })
}

// Read is a parameter, constant or state.
func (s *Session) Read(name string) (*Tensor, error) {
	if err := noNUL("name", name); err != nil {
		return nil, err
	}
	return newTensor((*handle)(s).hold(raw.Tsr_tensor_free, func(c uintptr, out *uintptr) uintptr {
		return raw.Tsr_session_read(c, name, out)
	}))
}

// WriteModel sets all parameters of the program from a model.
func (s *Session) WriteModel(model *Model) error {
	m, done := (*handle)(model).use()
	defer done()
	return (*handle)(s).call(func(c uintptr) uintptr { return raw.Tsr_session_write_model(c, m) })
}

// Feed sets an input of an entry, which keeps its value until it is fed again.
func (s *Session) Feed(entry, input string, value *Tensor) error {
	if err := noNUL("name", entry, input); err != nil {
		return err
	}
	return s.with(value, func(c, t uintptr) uintptr { return raw.Tsr_session_feed(c, entry, input, t) })
}

func (s *Session) with(value *Tensor, function func(c, t uintptr) uintptr) error {
	t, done := (*handle)(value).use()
	defer done()
	return (*handle)(s).call(func(c uintptr) uintptr { return function(c, t) })
}

// Run computes an entry.
func (s *Session) Run(entry string) error { return s.RunContext(context.Background(), entry) }

// RunContext is Run, which the context's end ends; the session then wants Restore.
func (s *Session) RunContext(ctx context.Context, entry string) error {
	if err := noNUL("entry", entry); err != nil {
		return err
	}
	return until(ctx, s.Cancel, func() error {
		return (*handle)(s).call(func(c uintptr) uintptr { return raw.Tsr_session_run(c, entry) })
	})
}

// Fetch is an output of the last run of an entry.
func (s *Session) Fetch(entry, output string) (*Tensor, error) {
	if err := noNUL("name", entry, output); err != nil {
		return nil, err
	}
	return newTensor((*handle)(s).hold(raw.Tsr_tensor_free, func(c uintptr, out *uintptr) uintptr {
		return raw.Tsr_session_fetch(c, entry, output, out)
	}))
}

// Cancel ends the Run in progress on another goroutine with an Error of code Cancelled.
func (s *Session) Cancel() {
	c, done := (*handle)(s).use()
	defer done()
	raw.Tsr_session_cancel(c)
}

// Restore makes a session usable after a failed or cancelled run; state must be written again.
func (s *Session) Restore() error { return (*handle)(s).call(raw.Tsr_session_restore) }

// Report is JSON: memory, communication.
func (s *Session) Report() (string, error) { return (*handle)(s).text(raw.Tsr_session_report) }

// Trace is what ran since the last call, in Chrome's trace format. It needs the option "trace".
func (s *Session) Trace() (string, error) { return (*handle)(s).text(raw.Tsr_session_take_trace) }

// KernelTimes is JSON: the kernels of a trace, of a Session, Trainer or Generator, with the time that each would take if nothing but memory or
// products bound it. Options: entry, bytes_per_s, flops_per_s.
func KernelTimes(trace string, options Options) (string, error) {
	return textWith(options, func(o uintptr, out *uintptr) uintptr { return raw.Tsr_trace_kernels(trace, o, out) })
}
