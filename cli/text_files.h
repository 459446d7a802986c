// Files that commands read and write: texts, standard input, and checks of outputs.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace cli {

// Reads all of a file, or of standard input for "-". Throws for more
// than `most` bytes or half of the memory, and for endless input.
std::string read_file(const std::string& path, int64_t most = INT64_MAX);
// Writes atomically (tsr_text_write).
void write_file(const std::string& path, const std::string& content);
// Returns whether standard input is a pipe or a file, to be read as text.
bool is_input_piped();
// Reads all of standard input as a typed or piped text, without its last line end.
std::string read_piped_text();
// Checks a text for a model: throws for rows of JSON, tables, binary content and
// invalid UTF-8 (tsr_text_check). `kind` plain: the same text whatever its content.
void check_text(const std::string& text, const std::string& path, const std::string& kind,
                bool takes_tables = false);
// Adds --kind for texts that are read whole: auto or plain.
void add_text_kind(CLI::App& command, std::string& kind);
// Throws where no file can be written, before hours of work are
// lost; no check for "". A text may also go to a device or pipe.
enum class Output { kModel, kFile, kText };  // kModel: the name has to be that of a written format
void check_output(const std::string& path, Output output = Output::kModel);

}  // namespace cli
