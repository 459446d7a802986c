package models

import (
	"fmt"
	"sync"
	"time"

	"tessera.dev/service/inference"
)

// queue bounds the requests of a model that have not begun, by their estimated tokens.
type queue struct {
	limit int64

	mutex    sync.Mutex
	tokens   int64
	requests int64
	perToken time.Duration // of the queue's recent progress; 0 where none is known
	last     time.Time
}

// queuedTokens returns what a prompt counts in the queue: one context at most, since the engine refuses longer prompts.
// context 0 is unknown.
func queuedTokens(estimated, context int64) int64 {
	if context > 0 && estimated > context {
		return context
	}
	return estimated
}

// enter admits a request. An empty queue admits any.
func (q *queue) enter(tokens int64) *inference.Error {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if q.requests > 0 && q.tokens+tokens > q.limit {
		seconds := int((time.Duration(q.tokens+tokens-q.limit) * q.perToken).Seconds()) + 1
		if seconds > 600 {
			seconds = 600
		}
		return &inference.Error{Kind: inference.Limited, Code: "queue_full", RetryAfter: seconds,
			Message: fmt.Sprintf("the queue is full: %d requests of about %d tokens wait, %d are allowed, and this request of about %d would "+
				"be number %d; retry in %d s", q.requests, q.tokens, q.limit, tokens, q.requests+1, seconds)}
	}
	if q.requests == 0 {
		q.last = time.Now()
	}
	q.requests++
	q.tokens += tokens
	return nil
}

// leave takes a request that has entered out of the queue, when it begins or ends.
func (q *queue) leave(tokens int64) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.requests--
	q.tokens -= tokens
	now := time.Now()
	if tokens > 0 {
		latest := now.Sub(q.last) / time.Duration(tokens)
		if q.perToken == 0 {
			q.perToken = latest
		}
		q.perToken = (3*q.perToken + latest) / 4
	}
	q.last = now
}
