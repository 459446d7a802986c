package models

import (
	"encoding/json"

	"tessera.dev/service/metrics"
)

// Measure refreshes the gauges of the engines, by the names of vLLM.
func (r *Registry) Measure(m *metrics.Registry) {
	for name, ready := range r.loadedModels() {
		if ready.engine == nil {
			continue
		}
		report, err := ready.report()
		if err != nil {
			continue
		}
		m.Set("num_requests_running", "Number of sequences that are computed.", float64(report.Running), "model_name", name)
		m.Set("num_requests_waiting", "Number of sequences that wait.", float64(report.Waiting), "model_name", name)
		if report.CacheTokens > 0 {
			used := 1 - float64(report.FreeCacheTokens)/float64(report.CacheTokens)
			m.Set("kv_cache_usage_perc", "Share of the cache that is in use; 1 is all.", used, "model_name", name)
		}
		m.SetCounter("num_preemptions_total", "Number of preemptions.", float64(report.Preemptions), "model_name", name)
		m.SetCounter("spec_decode_num_draft_tokens_total", "Number of draft tokens.", float64(report.Speculated), "model_name", name)
		m.SetCounter("spec_decode_num_accepted_tokens_total", "Number of accepted draft tokens.", float64(report.Accepted), "model_name", name)
	}
	r.measureShare(m)
	taken, _ := r.takenBytes()
	m.Set("model_plan_bytes", "Bytes of the loaded models by their plans.", float64(taken))
	m.Set("models_loaded", "Number of loaded models.", float64(len(r.loadedModels())))
}

// measureShare refreshes the counters of the turns on the cores.
func (r *Registry) measureShare(m *metrics.Registry) {
	text, err := r.runtime.Share()
	if err != nil {
		return
	}
	type side struct {
		Seconds float64
		CPU     float64 `json:"cpu_seconds"`
	}
	var report struct {
		Share               *float64 `json:"inference_share"`
		Inference, Training side
	}
	if json.Unmarshal([]byte(text), &report) != nil || report.Share == nil {
		return
	}
	for name, one := range map[string]side{"inference": report.Inference, "training": report.Training} {
		m.SetCounter("core_share_seconds_total", "Seconds with the cores.", one.Seconds, "side", name)
		m.SetCounter("core_share_cpu_seconds_total", "CPU seconds of the process in turns of the side.", one.CPU, "side", name)
	}
}

func (r *Registry) loadedModels() map[string]*loaded {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	all := map[string]*loaded{}
	for name, s := range r.slots {
		if s.ready != nil {
			all[name] = s.ready
		}
	}
	return all
}
