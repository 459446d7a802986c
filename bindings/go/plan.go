package tessera

import (
	"context"

	"tessera.dev/tessera/raw"
)

// Plan is how a model will be computed on some devices, with the time it should take and the bytes that each device will
// hold. Immutable; any goroutine.
type Plan handle

func newPlan(h *handle, err error) (*Plan, error) { return (*Plan)(h), err }

// NewPlan is the plan that NewTrainer, or with the option mode "generate" NewGenerator, would make of these options.
func NewPlan(r *Runtime, model *Model, options Options) (*Plan, error) {
	c, done := (*handle)(r).use()
	defer done()
	return newPlan((*handle)(model).holdWith(raw.Tsr_plan_free, options, func(m, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_plan_new(c, m, o, out)
	}))
}

// PlanMethods is JSON: the methods that could train a model, the richest first, with their bytes, and the first that fits, for
// Model.ForMethod. options are those of NewTrainer and method, adapters those of Model.WithAdapters; dataset may be nil.
func PlanMethods(ctx context.Context, r *Runtime, model *Model, dataset *Dataset, options, adapters Options) (report string, err error) {
	c, done := (*handle)(r).use()
	defer done()
	m, modelDone := (*handle)(model).use()
	defer modelDone()
	d, datasetDone, err := (*handle)(dataset).optional("dataset")
	defer datasetDone()
	if err != nil {
		return "", err
	}
	err = until(ctx, r.Cancel, func() (failed error) {
		err := adapters.with(func(a uintptr) uintptr {
			report, failed = textWith(options, func(o uintptr, out *uintptr) uintptr {
				return raw.Tsr_plan_methods(c, m, d, o, a, out)
			})
			return 0
		})
		if err != nil {
			return err
		}
		return failed
	})
	return report, err
}

// PlanJointly is JSON: the memory of a trainer and of engines over one model, together, before anything is allocated. trainer and engine
// are options of NewTrainer and NewEngine; options: engines (their number), weights (trainer or model), memory_limit of all together.
// dataset may be nil.
func PlanJointly(ctx context.Context, r *Runtime, model *Model, dataset *Dataset, trainer, engine, options Options) (report string, err error) {
	c, done := (*handle)(r).use()
	defer done()
	m, modelDone := (*handle)(model).use()
	defer modelDone()
	d, datasetDone, err := (*handle)(dataset).optional("dataset")
	defer datasetDone()
	if err != nil {
		return "", err
	}
	err = until(ctx, r.Cancel, func() (failed error) {
		err := trainer.with(func(t uintptr) uintptr {
			err := engine.with(func(e uintptr) uintptr {
				report, failed = textWith(options, func(o uintptr, out *uintptr) uintptr {
					return raw.Tsr_plan_jointly(c, m, d, t, e, o, out)
				})
				return 0
			})
			if err != nil {
				failed = err
			}
			return 0
		})
		if err != nil {
			return err
		}
		return failed
	})
	return report, err
}

// MemoryNeeds is JSON: the bytes on each device to generate a text, to train adapters and to train all parameters. Options: devices and
// what else places a Trainer, context, seq, batch, rank.
func (m *Model) MemoryNeeds(ctx context.Context, r *Runtime, options Options) (report string, err error) {
	c, done := (*handle)(r).use()
	defer done()
	model, modelDone := (*handle)(m).use()
	defer modelDone()
	err = until(ctx, r.Cancel, func() (failed error) {
		report, failed = textWith(options, func(o uintptr, out *uintptr) uintptr {
			return raw.Tsr_model_needs(c, model, o, out)
		})
		return failed
	})
	return report, err
}

// NewPlanContext is NewPlan in steps: it shows progress, and ends with the context.
func NewPlanContext(ctx context.Context, r *Runtime, model *Model, options Options, progress func(done float64)) (*Plan, error) {
	c, done := (*handle)(r).use()
	defer done()
	return planned(ctx, (*handle)(model), options, progress, func(m, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_plan_begin(c, m, o, out)
	})
}

// NewPlanForGraphContext is NewPlanForGraph in steps.
func NewPlanForGraphContext(ctx context.Context, devices *Devices, graph *Graph, options Options, progress func(done float64)) (*Plan, error) {
	c, done := (*handle)(devices).use()
	defer done()
	return planned(ctx, (*handle)(graph), options, progress, func(g, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_plan_begin_for_graph(c, g, o, out)
	})
}

func planned(ctx context.Context, of *handle, options Options, progress func(done float64),
	construct func(of, o uintptr, out *uintptr) uintptr) (*Plan, error) {
	w, err := of.begin(options, construct)
	if err != nil {
		return nil, err
	}
	return newPlan(w.made(ctx, progress, raw.Tsr_plan_free, raw.Tsr_plan_finish))
}

// NewPlanForGraph plans any graph. Options: batch, symbols, parallel, pins, memory_limit.
func NewPlanForGraph(devices *Devices, graph *Graph, options Options) (*Plan, error) {
	c, done := (*handle)(devices).use()
	defer done()
	return newPlan((*handle)(graph).holdWith(raw.Tsr_plan_free, options, func(g, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_plan_new_for_graph(c, g, o, out)
	}))
}

// ParsePlan reads a plan of this very graph from its text.
func ParsePlan(devices *Devices, graph *Graph, text string) (*Plan, error) {
	c, done := (*handle)(devices).use()
	defer done()
	return newPlan((*handle)(graph).hold(raw.Tsr_plan_free, func(g uintptr, out *uintptr) uintptr {
		return raw.Tsr_plan_parse_for_graph(c, g, text, out)
	}))
}

// LoadPlan reads a plan of this very graph from a file that Save wrote.
func LoadPlan(devices *Devices, graph *Graph, path string) (*Plan, error) {
	if err := noNUL("path", path); err != nil {
		return nil, err
	}
	c, done := (*handle)(devices).use()
	defer done()
	return newPlan((*handle)(graph).hold(raw.Tsr_plan_free, func(g uintptr, out *uintptr) uintptr {
		return raw.Tsr_plan_load_for_graph(c, g, path, out)
	}))
}

// Close frees it; see the package.
func (p *Plan) Close() { (*handle)(p).close() }

// Text is the plan as text that can be edited and given back as option "plan_file".
func (p *Plan) Text() (string, error) { return (*handle)(p).text(raw.Tsr_plan_text) }

// Info is JSON: strategy, mesh, predicted seconds, bytes of each device, candidates.
func (p *Plan) Info() (string, error) { return (*handle)(p).text(raw.Tsr_plan_info) }

// Trace is what one run should do, at predicted times. It needs the option "trace".
func (p *Plan) Trace() (string, error) { return (*handle)(p).text(raw.Tsr_plan_trace) }

// Explain is JSON: why the plan is as it is, and what it comes to.
func (p *Plan) Explain() (string, error) { return (*handle)(p).text(raw.Tsr_plan_explain) }

// Page is the explanation as one HTML page.
func (p *Plan) Page() (string, error) { return (*handle)(p).text(raw.Tsr_plan_page) }

// Save writes the plan's text to a file.
func (p *Plan) Save(path string) error {
	if err := noNUL("path", path); err != nil {
		return err
	}
	return (*handle)(p).call(func(c uintptr) uintptr { return raw.Tsr_plan_save(c, path) })
}

// EstimatePlan is JSON: what a training step, or with the option mode "generate" a request, takes on a cluster that need not
// be present. description is that of NewModel. Options: cluster, which is needed, and others that the header lists.
func EstimatePlan(description string, options Options) (string, error) {
	return estimate(description, options, raw.Tsr_plan_estimate)
}

// EstimatePlanPage is the same explained, as one HTML page.
func EstimatePlanPage(description string, options Options) (string, error) {
	return estimate(description, options, raw.Tsr_plan_estimate_page)
}

func estimate(description string, options Options, ask func(string, uintptr, *uintptr) uintptr) (string, error) {
	if err := noNUL("description", description); err != nil {
		return "", err
	}
	return textWith(options, func(o uintptr, out *uintptr) uintptr { return ask(description, o, out) })
}

// CheckPlan checks a certificate of EstimatePlan. The report is JSON; code Corrupt names the first claim that does not hold.
func CheckPlan(certificate string) (string, error) {
	if err := noNUL("certificate", certificate); err != nil {
		return "", err
	}
	return text(func(out *uintptr) uintptr { return raw.Tsr_plan_check(certificate, out) })
}
