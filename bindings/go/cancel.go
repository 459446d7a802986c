package tessera

import (
	"context"
	"errors"
	"time"
)

// until runs body, and calls cancel from another goroutine when ctx ends. If that aborted body, it returns ctx.Err(). Cancel
// is repeated, because it does nothing before the C call has begun. No goroutine is left behind.
func until(ctx context.Context, cancel func(), body func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Done() == nil {
		return body()
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-stop:
			return
		case <-ctx.Done():
		}
		again := time.NewTicker(5 * time.Millisecond)
		defer again.Stop()
		for {
			cancel()
			select {
			case <-stop:
				return
			case <-again.C:
			}
		}
	}()
	err := body()
	close(stop)
	<-stopped
	if errors.Is(err, ErrCancelled) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// holdUntil makes a handle, and calls r.Cancel if the context ends meanwhile.
func holdUntil(ctx context.Context, r *Runtime, construct func() (*handle, error)) (made *handle, err error) {
	err = until(ctx, r.Cancel, func() (err error) {
		made, err = construct()
		return err
	})
	return made, err
}
