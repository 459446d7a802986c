package listing

import "tessera.dev/service/inference"

// codexModel describes a model to the Codex command line, which reads the array "models" and wants every member that has no
// omitempty here.
type codexModel struct {
	Slug                string     `json:"slug"`
	Name                string     `json:"display_name"`
	Description         string     `json:"description"`
	Levels              []string   `json:"supported_reasoning_levels"`
	Shell               string     `json:"shell_type"`
	Visibility          string     `json:"visibility"`
	InAPI               bool       `json:"supported_in_api"`
	Priority            int        `json:"priority"`
	Upgrade             *string    `json:"upgrade"`
	Instructions        string     `json:"base_instructions"`
	Summaries           bool       `json:"supports_reasoning_summaries"`
	Verbosity           bool       `json:"support_verbosity"`
	DefaultVerbosity    *string    `json:"default_verbosity"`
	ApplyPatch          *string    `json:"apply_patch_tool_type"`
	Truncation          truncation `json:"truncation_policy"`
	ParallelCalls       bool       `json:"supports_parallel_tool_calls"`
	Context             int64      `json:"context_window,omitempty"`
	ContextPercent      int        `json:"effective_context_window_percent"`
	ExperimentalTools   []string   `json:"experimental_supported_tools"`
	Modalities          []string   `json:"input_modalities"`
	ImageDetailOriginal bool       `json:"supports_image_detail_original"`
}

// truncation cuts the output of commands before a model reads it.
type truncation struct {
	Mode  string `json:"mode"`
	Limit int64  `json:"limit"`
}

// mostOutput is Codex's own limit of a command's output, in bytes.
const mostOutput = 10000

// newCodexModel describes a model. Priorities are places in the list: Codex begins with the least.
func newCodexModel(info inference.Info, place int) codexModel {
	return codexModel{
		Slug: info.Name, Name: info.Name, Description: info.Architecture, Levels: []string{}, Shell: "shell_command", Visibility: "list",
		InAPI: true, Priority: place, Instructions: instructions, Truncation: truncation{"bytes", mostOutput}, ParallelCalls: true,
		Context: info.Context, ContextPercent: 95, ExperimentalTools: []string{}, Modalities: []string{"text"},
	}
}

// instructions are what Codex sends as those of the model where its user gives none.
const instructions = "You are a coding agent in a terminal. Read files and run commands with the shell tool, make small changes, " +
	"check them, and say in few words what you did."
