package tessera

import (
	"errors"
	"strings"
	"testing"

	"tessera.dev/tessera/raw"
)

func TestAnotherVersionIsRefused(t *testing.T) {
	if err := checkVersion(uint(raw.TSR_VERSION)); err != nil {
		t.Fatal(err)
	}
	for _, header := range []int{raw.TSR_VERSION + 100, raw.TSR_VERSION - 100, raw.TSR_VERSION + 10000} {
		if err := checkVersion(uint(header)); !errors.Is(err, ErrUnsupported) {
			t.Errorf("header %d: found %v, wanted code unsupported", header, err)
		}
	}
}

// A library that does not fit makes every first call an error.
func TestNothingIsCalledWhereTheVersionDiffers(t *testing.T) {
	if err := ready(); err != nil {
		t.Fatal(err)
	}
	version.err = checkVersion(uint(raw.TSR_VERSION + 100))
	defer func() { version.err = nil }()
	released := 0
	_, runtime := NewRuntime(nil)
	_, model := LoadModel("nowhere.tsr")
	_, estimate := EstimatePlan("nothing", nil)
	_, borrowed := BorrowModel(nil, func() { released++ })
	_, tensor := BorrowTensor(F32, nil, func() { released++ })
	for _, err := range []error{runtime, model, estimate, borrowed, tensor, VerifyModel("nowhere.tsr")} {
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), LibraryVersion()) {
			t.Errorf("found %v, wanted code unsupported and the library's version", err)
		}
	}
	if released != 2 {
		t.Errorf("found %d memories given back, wanted 2", released)
	}
}
