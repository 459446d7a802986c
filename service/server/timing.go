package server

import (
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/service/metrics"
)

// timing is what metrics say of an exchange, by the names of vLLM.
type timing struct {
	last      time.Time // of a token
	generated int64     // tokens that are counted already
	submitted time.Time
	waiting   []time.Time // arrivals of events that are not written yet
	first     time.Time   // when the first token was written
}

// submit notes that the engine has all requests.
func (t *timing) submit(x *exchange, received time.Time) {
	t.submitted = time.Now()
	x.server.config.Metrics.Observe("request_submit_time_seconds", "Time from the last byte of a request to the engine's having it.", metrics.Delays,
		t.submitted.Sub(received).Seconds(), "model_name", x.model.Name)
}

// wait notes an event that is to be written.
func (t *timing) wait(arrived time.Time) { t.waiting = append(t.waiting, arrived) }

// write notes that all events so far are written.
func (t *timing) write(x *exchange) {
	if len(t.waiting) == 0 {
		return
	}
	now := time.Now()
	for _, arrived := range t.waiting {
		x.server.config.Metrics.Observe("event_write_time_seconds", "Time from an event's arrival to its write to the client.", metrics.Delays,
			now.Sub(arrived).Seconds(), "model_name", x.model.Name)
	}
	t.waiting = t.waiting[:0]
	if t.first.IsZero() && !t.last.IsZero() {
		t.first = now
	}
}

// event notes the arrival of tokens.
func (t *timing) event(x *exchange, event *inference.Event) {
	m, name := x.server.config.Metrics, x.model.Name
	if event.Finish != "" {
		t.count(x, string(event.Finish))
		return
	}
	if len(event.Tokens) == 0 {
		return
	}
	t.addGenerated(x, int64(len(event.Tokens)))
	now := time.Now()
	if t.last.IsZero() {
		m.Observe("time_to_first_token_seconds", "Time to first token in seconds.", metrics.Seconds, now.Sub(x.begun).Seconds(), "model_name", name)
	} else {
		m.Observe("inter_token_latency_seconds", "Time between tokens in seconds.", metrics.Seconds, now.Sub(t.last).Seconds(), "model_name", name)
	}
	t.last = now
}

// addGenerated counts tokens as they come, so that rates of long texts are even.
func (t *timing) addGenerated(x *exchange, tokens int64) {
	x.server.config.Metrics.Add("generation_tokens_total", "Number of generation tokens processed.", float64(tokens), "model_name", x.model.Name)
	t.generated += tokens
}

// count counts a text by the reason of its end.
func (t *timing) count(x *exchange, reason string) {
	x.server.config.Metrics.Add("request_success_total", "Count of processed texts.", 1, "finished_reason", reason, "model_name", x.model.Name)
}

// end notes what is known once all texts have ended.
func (t *timing) end(x *exchange) {
	m, name := x.server.config.Metrics, x.model.Name
	generated := int64(0)
	if used := x.usage; len(used) == 1 && !t.first.IsZero() {
		m.Observe("first_token_delay_seconds", "Time from a first token in the engine to its write to the client, by the engine's own count.", metrics.Delays,
			t.first.Sub(t.submitted).Seconds()-used[0].Queue-used[0].Prefill, "model_name", name)
	}
	for _, used := range x.usage {
		generated += used.Generated
		m.Add("prompt_tokens_total", "Number of prefill tokens processed.", float64(used.Prompt), "model_name", name)
		m.Add("prefix_cache_queries_total", "Prefix cache queries, in tokens.", float64(used.Prompt), "model_name", name)
		m.Add("prefix_cache_hits_total", "Prefix cache hits, in tokens.", float64(used.Cached), "model_name", name)
		m.Observe("request_prompt_tokens", "Number of prefill tokens of a request.", metrics.Tokens, float64(used.Prompt), "model_name", name)
		m.Observe("request_generation_tokens", "Number of generation tokens of a request.", metrics.Tokens, float64(used.Generated), "model_name", name)
		m.Observe("request_queue_time_seconds", "Time that a request waited.", metrics.Seconds, used.Queue, "model_name", name)
		m.Observe("request_prefill_time_seconds", "Time of a request's prefill.", metrics.Seconds, used.Prefill, "model_name", name)
		m.Observe("request_decode_time_seconds", "Time of a request's decoding.", metrics.Seconds, used.Decode, "model_name", name)
	}
	if generated > t.generated { // tokens without an event, as an end's
		t.addGenerated(x, generated-t.generated)
	}
	m.Observe("e2e_request_latency_seconds", "Time of a request in all.", metrics.Seconds, time.Since(x.begun).Seconds(), "model_name", name)
}
