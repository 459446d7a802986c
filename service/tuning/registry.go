package tuning

// Source is the files of a model that can be trained.
type Source struct {
	Path     string // of the base: a file or folder
	Adapter  string // of a model that is an adapter: its folder; else ""
	Base     string // the name of the base; the model's own where it is one
	Template string // of chats, where it is not the one in the file; ""
}

// Registry is the models of the service, as trainings see them: package models implements it.
type Registry interface {
	// Source is NotFound for a name of none, Invalid for a model that cannot be trained.
	Source(name string) (Source, error)
	// Publish makes the files at path a model of this name, from this moment on: a folder of adapters over base, or where base
	// is "" a model's file. With the arguments of an earlier call it changes nothing. The files stay as long as the name does.
	Publish(name, base, path string) error
}
