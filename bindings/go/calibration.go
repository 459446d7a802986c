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
	w, err := (*handle)(r).begin(options, raw.Tsr_calibration_begin)
	if err != nil {
		return nil, err
	}
	defer (*handle)(w).close()
	if err := w.run(ctx, r.Cancel, progress); err != nil {
		return nil, err
	}
	h, err := (*handle)(w).hold(raw.Tsr_calibration_free, raw.Tsr_calibration_finish)
	return (*Calibration)(h), err
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
