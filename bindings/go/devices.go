package tessera

import "tessera.dev/tessera/raw"

// Devices are what a plan is made for and a session runs on, one rank each. Immutable; any goroutine.
type Devices handle

// OpenDevices finds devices by their text: "cpu:4", "cuda", "cuda:0,1".
func OpenDevices(r *Runtime, text string) (*Devices, error) {
	if err := noNUL("devices", text); err != nil {
		return nil, err
	}
	h, err := (*handle)(r).hold(raw.Tsr_devices_free, func(c uintptr, out *uintptr) uintptr {
		return raw.Tsr_devices_open(c, text, out)
	})
	return (*Devices)(h), err
}

// Close frees it; see the package.
func (d *Devices) Close() { (*handle)(d).close() }

// Count is the number of ranks; 0 for devices that are closed.
func (d *Devices) Count() int {
	c, done := (*handle)(d).use()
	defer done()
	return raw.Tsr_devices_count(c)
}

// Info is JSON: names, memory, rates, links.
func (d *Devices) Info() (string, error) { return (*handle)(d).text(raw.Tsr_devices_info) }
