// Shows how a model would be trained on some devices, before anything large is allocated: the plan, the seconds of a step,
// the bytes of each device, and what else was considered; the twin of samples/c/plan.c.
//
//	plan MODEL DEVICES [BATCH]        e.g.  plan small.tsr cpu:4 8
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"tessera.dev/tessera"
)

// info is what this sample reads of a plan's report.
type info struct {
	Strategy    string
	Mesh        string
	StepSeconds float64 `json:"predicted_step_seconds"`
	Devices     []struct {
		Name  string
		Arena struct{ Predicted int64 } `json:"arena_bytes"`
	}
	Candidates []struct {
		Strategy    string
		StepSeconds float64 `json:"step_seconds"`
		Bytes       int64   `json:"arena_bytes"`
		Rejected    string
	}
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintf(os.Stderr, "usage: %s MODEL DEVICES [BATCH]\n", os.Args[0])
		os.Exit(2)
	}
	batch := 8
	if len(os.Args) > 3 {
		batch, _ = strconv.Atoi(os.Args[3])
	}
	if err := run(os.Args[1], os.Args[2], batch); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(path, devices string, batch int) error {
	runtime, err := tessera.NewRuntime(nil)
	if err != nil {
		return err
	}
	defer runtime.Close()
	model, err := tessera.LoadModel(path)
	if err != nil {
		return err
	}
	defer model.Close()
	plan, err := tessera.NewPlan(runtime, model, tessera.Options{"devices": devices, "batch": batch})
	if err != nil {
		return err
	}
	defer plan.Close()
	report, err := plan.Info()
	if err != nil {
		return err
	}
	var found info
	if err := json.Unmarshal([]byte(report), &found); err != nil {
		return err
	}
	if found.Mesh == "" {
		found.Mesh = "none"
	}
	fmt.Printf("strategy %s\nmesh %s\nstep %.6f s\n", found.Strategy, found.Mesh, found.StepSeconds)
	for _, device := range found.Devices {
		fmt.Printf("device %s %d bytes\n", device.Name, device.Arena.Predicted)
	}
	for _, candidate := range found.Candidates {
		if candidate.Rejected != "" {
			fmt.Printf("candidate %s rejected: %s\n", candidate.Strategy, candidate.Rejected)
			continue
		}
		fmt.Printf("candidate %s %.6f s %d bytes\n", candidate.Strategy, candidate.StepSeconds, candidate.Bytes)
	}
	return nil
}
