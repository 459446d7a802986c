package tessera

import (
	"context"

	"tessera.dev/tessera/raw"
)

// Calibration is the measured profile of a backend's devices, which prices plans. Immutable.
type Calibration handle

// Calibrate measures, for about the option "seconds". progress, which may be nil, hears the share that is done and what is
// measured next. Run it while nothing else runs. Options: devices, seconds.
func Calibrate(ctx context.Context, r *Runtime, options Options, progress func(done float64, next string)) (*Calibration, error) {
	h, err := (*handle)(r).holdWith(raw.Tsr_calibration_free, options, raw.Tsr_calibration_new)
	if err != nil {
		return nil, err
	}
	c, release := h.use()
	defer release()
	var tell func(float64)
	if progress != nil {
		tell = func(done float64) {
			next, _, _ := shortText(func(buffer []byte, size *uint64) uintptr {
				return raw.Tsr_calibration_next(c, buffer, size)
			})
			progress(done, next)
		}
	}
	if err := work(ctx, r.Cancel, h, raw.Tsr_calibration_step, tell); err != nil {
		h.close()
		return nil, err
	}
	return (*Calibration)(h), nil
}

// Close frees it; see the package.
func (c *Calibration) Close() { (*handle)(c).close() }

// Text is the profile's file.
func (c *Calibration) Text() (string, error) { return (*handle)(c).text(raw.Tsr_calibration_text) }

// Save writes the profile to a file; "" is DefaultPath.
func (c *Calibration) Save(path string) error {
	if err := noNUL("path", path); err != nil {
		return err
	}
	return (*handle)(c).call(func(c uintptr) uintptr { return raw.Tsr_calibration_save(c, path) })
}

// DefaultPath is the file in the cache folder where the option profile "auto" looks.
func (c *Calibration) DefaultPath() (string, error) {
	h, done := (*handle)(c).use()
	defer done()
	path, _, err := shortText(func(buffer []byte, size *uint64) uintptr {
		return raw.Tsr_calibration_default_path(h, buffer, size)
	})
	return path, err
}
