package jobs

import (
	"math"
	"regexp"

	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/tuning"
)

// Bounds of OpenAI's API.
const (
	mostEpochs     = 50
	mostBatch      = 256
	mostSuffix     = 64
	mostPairs      = 16
	mostPairKey    = 64
	mostPairValue  = 512
	mostMultiplier = 1e4
	leastPositive  = 1e-12
	mostBeta       = 2
)

// suffixLetters are those that a model's name may have.
var suffixLetters = regexp.MustCompile(`^[A-Za-z0-9._-]*$`)

// readOrder reads the body of a new job.
func readOrder(data []byte) (tuning.Order, error) {
	body, err := fields.Body(data)
	if err != nil {
		return tuning.Order{}, err
	}
	order := tuning.Order{Model: body.NeedText("model"), TrainingFile: body.NeedText("training_file"), Seed: -1, Method: tuning.Supervised}
	order.ValidationFile, _ = body.Text("validation_file")
	if order.Suffix, _ = body.Text("suffix"); len(order.Suffix) > mostSuffix || !suffixLetters.MatchString(order.Suffix) {
		body.Fail("suffix", fields.InvalidValue, "is %q; at most %d letters, digits, '.', '_' and '-' are wanted", order.Suffix, mostSuffix)
	}
	if seed, ok := body.Integer("seed", 0, math.MaxInt32); ok {
		order.Seed = seed
	}
	order.Metadata = readMetadata(body)
	readMethod(body, &order)
	order.Settings = readSettings(body)
	if value, ok := body.Value("integrations"); ok && len(value.List(0, 5)) > 0 {
		value.Fail(fields.NotServed, "is not supported: the service makes no connections; metrics are in the events and in the result's file")
	}
	return order, body.Done()
}

func readMetadata(body *fields.Object) map[string]string {
	pairs, ok := body.Object("metadata")
	if !ok {
		return nil
	}
	if len(pairs.Names()) > mostPairs {
		body.Fail("metadata", fields.TooLong, "has %d pairs; at most %d are wanted", len(pairs.Names()), mostPairs)
	}
	found := map[string]string{}
	for _, name := range pairs.Names() {
		text, _ := pairs.Text(name)
		if len(name) > mostPairKey || len(text) > mostPairValue {
			body.Fail("metadata", fields.InvalidValue, "has a key of %d letters with a value of %d; at most %d and %d are wanted", len(name),
				len(text), mostPairKey, mostPairValue)
		}
		found[name] = text
	}
	return found
}

// readMethod reads method, or the older hyperparameters at the top.
func readMethod(body *fields.Object, order *tuning.Order) {
	older, hasOlder := body.Object("hyperparameters")
	if hasOlder {
		order.Hyperparameters = readHyperparameters(older, false)
	}
	method, ok := body.Object("method")
	if !ok {
		return
	}
	method.NeedText("type")
	order.Method, _ = method.Choice("type", tuning.Supervised, tuning.Preference, "reinforcement")
	if order.Method == "reinforcement" {
		method.Fail("type", fields.NotServed, "is reinforcement, which jobs do not support: supervised and dpo are jobs; "+
			"for rewards of your own use the training primitives")
	}
	for _, each := range []string{tuning.Supervised, tuning.Preference, "reinforcement"} {
		given, ok := method.Object(each)
		if !ok {
			continue
		}
		if each != order.Method {
			method.Fail(each, fields.InvalidValue, "is given, and the type is %s", order.Method)
			continue
		}
		if numbers, ok := given.Object("hyperparameters"); ok {
			if hasOlder {
				body.Fail("hyperparameters", fields.InvalidValue, "is given with 'method.%s.hyperparameters'; one of them is wanted", each)
			}
			order.Hyperparameters = readHyperparameters(numbers, each == tuning.Preference)
		}
		given.Done()
	}
	method.Done()
}

func readHyperparameters(numbers *fields.Object, preference bool) (read tuning.Hyperparameters) {
	read.Epochs = integerOrAuto(numbers, "n_epochs", mostEpochs)
	read.Batch = integerOrAuto(numbers, "batch_size", mostBatch)
	read.Multiplier = numberOrAuto(numbers, "learning_rate_multiplier", mostMultiplier)
	if preference {
		read.Beta = numberOrAuto(numbers, "beta", mostBeta)
	}
	numbers.Done()
	return read
}

func isAuto(numbers *fields.Object, name string) bool {
	value, ok := numbers.Value(name)
	if !ok {
		return true
	}
	if value.Kind() != fields.Text {
		return false
	}
	if text := value.Text(); text != "auto" {
		value.Fail(fields.InvalidValue, "is %q; a number or auto is wanted", text)
	}
	return true
}

func integerOrAuto(numbers *fields.Object, name string, most int64) int64 {
	if isAuto(numbers, name) {
		return 0
	}
	value, _ := numbers.Integer(name, 1, most)
	return value
}

func numberOrAuto(numbers *fields.Object, name string, most float64) float64 {
	if isAuto(numbers, name) {
		return 0
	}
	value, _ := numbers.Number(name, leastPositive, most)
	return value
}

// readSettings reads the member tessera, which OpenAI's API lacks.
func readSettings(body *fields.Object) (settings tuning.Settings) {
	given, ok := body.Object("tessera")
	if !ok {
		return settings
	}
	settings.Rank, _ = given.Integer("rank", 1, 1024)
	settings.Alpha, _ = given.Number("alpha", leastPositive, 1e6)
	settings.Context, _ = given.Integer("context", 8, 1<<20)
	settings.Rate, _ = given.Number("learning_rate", leastPositive, 1)
	settings.Full, _ = given.Flag("full")
	if settings.Full && (settings.Rank != 0 || settings.Alpha != 0) {
		given.Fail("full", fields.InvalidValue, "is true with a rank or an alpha, which are those of adapters")
	}
	given.Done()
	return settings
}
