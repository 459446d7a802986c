package tessera

import "tessera.dev/tessera/raw"

// text takes over the text that a C function makes.
func text(ask func(out *uintptr) uintptr) (string, error) {
	if err := ready(); err != nil {
		return "", err
	}
	var made uintptr
	if err := failure(ask(&made)); err != nil {
		return "", err
	}
	return takeText(made), nil
}

// takeText copies a text of C and frees it.
func takeText(made uintptr) string {
	defer raw.Tsr_text_free(made)
	if raw.Tsr_text_size(made) == 0 {
		return ""
	}
	return raw.Tsr_text_data(made)
}

// textWith takes over the text that a C function with options makes.
func textWith(options Options, ask func(options uintptr, out *uintptr) uintptr) (string, error) {
	if err := ready(); err != nil {
		return "", err
	}
	var made uintptr
	if err := options.with(func(o uintptr) uintptr { return ask(o, &made) }); err != nil {
		return "", err
	}
	return takeText(made), nil
}

// shortText copies a text that a handle holds; false where it has none.
func shortText(ask func(buffer []byte, size *uint64) uintptr) (string, bool, error) {
	buffer := make([]byte, 256)
	for {
		var size uint64
		if err := failure(ask(buffer, &size)); err != nil {
			return "", false, err
		}
		if size == 0 {
			return "", false, nil
		}
		if size <= uint64(len(buffer)) {
			return string(buffer[:size-1]), true, nil
		}
		buffer = make([]byte, size)
	}
}

// int32s copies an array that a handle holds.
func int32s(ask func(items []int32, count *uint64) uintptr) ([]int32, error) {
	var items []int32
	for {
		var count uint64
		if err := failure(ask(items, &count)); err != nil {
			return nil, err
		}
		if count <= uint64(len(items)) {
			return items[:count], nil
		}
		items = make([]int32, count)
	}
}
