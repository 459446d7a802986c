package models

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"tessera.dev/tessera"
)

// source is where a model is read from.
type source struct {
	name, path string
	base       string // of a snapshot: the name of the model at path
	adapters   string // of a snapshot in a folder: that of its adapters, which the model at path is loaded with; else ""
	created    int64  // seconds since 1970
	bytes      int64
	memory     *tessera.Model // of a snapshot in memory: the model with its adapters; else nil
}

// isSnapshot says whether it is a base with adapters, which no list has.
func (s *source) isSnapshot() bool { return s.base != "" }

// shard is the name of one of several GGUF files of a model, which are loaded by the first.
var shard = regexp.MustCompile(`^(.*)-(\d{5})-of-\d{5}\.gguf$`)

// findModels lists the models of the paths. Two models of one name are an error.
func findModels(paths []string, aliases map[string]string) (map[string]source, []string, error) {
	found, order := map[string]source{}, []string{}
	add := func(name, path string) error {
		if other, taken := found[name]; taken {
			if other.path == path {
				return nil
			}
			return fmt.Errorf("two models have the name %q: %s and %s; give one of them another by --alias NAME=PATH", name, other.path, path)
		}
		made, err := newSource(name, path)
		if err != nil {
			return err
		}
		found[name] = made
		order = append(order, name)
		return nil
	}
	for _, path := range paths {
		at, err := modelsAt(path)
		if err != nil {
			return nil, nil, err
		}
		for _, one := range at {
			if err := add(modelName(one), one); err != nil {
				return nil, nil, err
			}
		}
	}
	for _, name := range sortedKeys(aliases) {
		path := aliases[name]
		if other, known := found[path]; known {
			path = other.path
		}
		if !isModel(path) {
			return nil, nil, fmt.Errorf("--alias %s=%s: found no model there; wanted a .gguf or .tsr file, a Hugging Face folder, or the name of a model", name, aliases[name])
		}
		if err := add(name, path); err != nil {
			return nil, nil, err
		}
	}
	return found, order, nil
}

// modelsAt returns the paths of the models at a path: the path itself, or the models in that folder.
func modelsAt(path string) ([]string, error) {
	state, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%s: found nothing there; wanted a .gguf or .tsr file, a Hugging Face folder, or a folder of these", path)
	}
	if isModel(path) {
		return []string{path}, nil
	}
	if !state.IsDir() {
		return nil, fmt.Errorf("%s: found a file of another kind; wanted .gguf or .tsr (`tessera import` makes one)", path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, entry := range entries {
		one := filepath.Join(path, entry.Name())
		if strings.HasPrefix(entry.Name(), ".") || !isModel(one) {
			continue
		}
		if parts := shard.FindStringSubmatch(entry.Name()); parts != nil && parts[2] != "00001" {
			continue
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: found a folder without models; wanted .gguf or .tsr files, or Hugging Face folders (with config.json)", path)
	}
	return all, nil
}

func isModel(path string) bool {
	state, err := os.Stat(path)
	if err != nil {
		return false
	}
	if state.IsDir() {
		config, err := os.Stat(filepath.Join(path, "config.json"))
		return err == nil && !config.IsDir()
	}
	extension := strings.ToLower(filepath.Ext(path))
	return extension == ".gguf" || extension == ".tsr"
}

// modelName returns the file's name without its extension and its number among parts, or the folder's name.
func modelName(path string) string {
	absolute, err := filepath.Abs(path)
	if err != nil {
		absolute = path
	}
	name := filepath.Base(absolute)
	if parts := shard.FindStringSubmatch(name); parts != nil {
		return parts[1]
	}
	extension := filepath.Ext(name)
	if lower := strings.ToLower(extension); lower == ".gguf" || lower == ".tsr" {
		name = strings.TrimSuffix(name, extension)
	}
	return name
}

func newSource(name, path string) (source, error) {
	made := source{name: name, path: path}
	state, err := os.Stat(path)
	if err != nil {
		return made, err
	}
	made.created = state.ModTime().Unix()
	if !state.IsDir() {
		made.bytes = state.Size()
		return made, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return made, err
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && !entry.IsDir() && strings.HasSuffix(entry.Name(), ".safetensors") {
			made.bytes += info.Size()
		}
	}
	return made, nil
}
