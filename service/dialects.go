package main

import (
	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/chat"
	"tessera.dev/service/dialect/completions"
	"tessera.dev/service/dialect/files"
	jobpaths "tessera.dev/service/dialect/jobs"
	"tessera.dev/service/dialect/listing"
	"tessera.dev/service/dialect/messages"
	"tessera.dev/service/dialect/ollama"
	"tessera.dev/service/dialect/operator"
	"tessera.dev/service/dialect/responses"
	"tessera.dev/service/dialect/texts"
	tinkerpaths "tessera.dev/service/dialect/tinker"
	"tessera.dev/service/jobs"
	"tessera.dev/service/jobs/training"
	"tessera.dev/service/models"
	"tessera.dev/service/store"
	"tessera.dev/service/tinker"
	tinkertraining "tessera.dev/service/tinker/training"
	"tessera.dev/service/tuning"
)

// dialects are the wire formats that are served.
func dialects(registry *models.Registry) []dialect.Dialect {
	anthropic := messages.New()
	for i := range anthropic.Endpoints {
		anthropic.Endpoints[i].CountsFirst = true // message_start tells the tokens of the prompt
	}
	return []dialect.Dialect{chat.New(chat.Settings{}), completions.New(), responses.New(), anthropic, ollama.New(), texts.New(), listing.New(), operator.New(registry)}
}

// tuningDialects are files and fine-tuning jobs, whose worker runs until end.
func tuningDialects(flags *flags, registry *models.Registry, state *store.Store, log *log) (all []dialect.Dialect, end func(), err error) {
	runner, err := training.New(training.Config{Devices: flags.devices, Threads: flags.threads, MostRank: int64(flags.adapterRank), Cores: registry})
	if err != nil {
		return nil, nil, err
	}
	work := jobs.New(jobs.Config{Store: state, Registry: registry, Runner: runner, Log: log.write})
	if err := work.Start(); err != nil {
		runner.Close()
		return nil, nil, err
	}
	end = func() {
		work.Close()
		runner.Close()
	}
	return stateful(state, work), end, nil
}

// stateful are the dialects that need a folder of what lasts.
func stateful(stored tuning.Files, work tuning.Jobs) []dialect.Dialect {
	return []dialect.Dialect{files.New(stored), jobpaths.New(work)}
}

// tinkerDialects are trainings by primitives, which go on until end.
func tinkerDialects(flags *flags, registry *models.Registry, state *store.Store, passes tinkerpaths.Passes, log *log) (all []dialect.Dialect, end func(), err error) {
	trainers, err := tinkertraining.New(tinkertraining.Config{Devices: flags.devices, Threads: flags.threads, Context: int64(flags.trainContext), Models: registry,
		Cores: registry, Slots: int64(flags.trainingSlots), Rank: int64(flags.trainingRank), Rows: int64(flags.trainingRows), Log: log.write})
	if err != nil {
		return nil, nil, err
	}
	work, err := tinker.New(tinker.Config{Trainers: trainers, Models: registry, Store: state, Sync: store.SyncTree, Log: log.write,
		MostTrainers: flags.trainers, MostBytes: int64(flags.memoryLimit)})
	if err != nil {
		trainers.Close()
		return nil, nil, err
	}
	end = func() {
		work.Close()
		trainers.Close()
	}
	return primitive(work, passes), end, nil
}

// primitive are Tinker's paths.
func primitive(work *tinker.Service, passes tinkerpaths.Passes) []dialect.Dialect {
	surface := tinkerpaths.Alias(chat.New(chat.Settings{}), completions.New(), listing.New())
	return []dialect.Dialect{tinkerpaths.New(work, passes), surface}
}
