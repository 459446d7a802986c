package tessera

import (
	"fmt"
	"strings"

	"tessera.dev/tessera/raw"
)

// Options are the keyed values that the header lists for each function: integers, bools, floats, strings, and slices of
// integers. Nil is all defaults.
type Options map[string]any

// with builds the C options, runs body with them and frees them.
func (o Options) with(body func(options uintptr) uintptr) error {
	var options uintptr
	if err := failure(raw.Tsr_options_new(&options)); err != nil {
		return err
	}
	defer raw.Tsr_options_free(options)
	for key, value := range o {
		if err := setOption(options, key, value); err != nil {
			return err
		}
	}
	return failure(body(options))
}

// CheckOptions says what the maker of a consumer ("trainer", "run", "plan", "generator", "engine", "scorer", "embedder", "imatrix" or
// "dataset") would say of these options by themselves, before models and data are read.
func CheckOptions(consumer string, options Options) error {
	if err := noNUL("consumer", consumer); err != nil {
		return err
	}
	return options.with(func(o uintptr) uintptr { return raw.Tsr_options_check(o, consumer) })
}

// WordHint is what may be meant by a word that is none of known: the end of a message about it, such as "did you mean --lr?"; "" where
// nothing is. kind: "option", of another project or misspelt, or "command", of the program tessera.
func WordHint(kind, word string, known []string) (string, error) {
	words := strings.Join(known, " ")
	for name, given := range map[string]string{"kind": kind, "word": word, "known": words} {
		if err := noNUL(name, given); err != nil {
			return "", err
		}
	}
	return text(func(out *uintptr) uintptr { return raw.Tsr_word_hint(kind, word, words, out) })
}

func setOption(options uintptr, key string, value any) error {
	if err := noNUL("key of an option", key); err != nil {
		return err
	}
	switch v := value.(type) {
	case int:
		return failure(raw.Tsr_options_set_i64(options, key, int64(v)))
	case int32:
		return failure(raw.Tsr_options_set_i64(options, key, int64(v)))
	case int64:
		return failure(raw.Tsr_options_set_i64(options, key, v))
	case bool:
		number := int64(0)
		if v {
			number = 1
		}
		return failure(raw.Tsr_options_set_i64(options, key, number))
	case float32:
		return failure(raw.Tsr_options_set_f64(options, key, float64(v)))
	case float64:
		return failure(raw.Tsr_options_set_f64(options, key, v))
	case string:
		if err := noNUL(fmt.Sprintf("option %q", key), v); err != nil {
			return err
		}
		return failure(raw.Tsr_options_set_str(options, key, v))
	case []int:
		return setList(options, key, v)
	case []int32:
		return setList(options, key, v)
	case []int64:
		return setList(options, key, v)
	}
	return refuse("option %q: found a %T, wanted an int, bool, float, string or slice of ints", key, value)
}

func setList[T int | int32 | int64](options uintptr, key string, given []T) error {
	values := make([]int64, len(given))
	for i, value := range given {
		values[i] = int64(value)
	}
	return failure(raw.Tsr_options_set_i64_list(options, key, values))
}
