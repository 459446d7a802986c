// Files of text that the command writes: whole or not at all, with the permissions of the file that they replace, under
// names that nobody can have planted; straight into what a link, a device or a pipe leads to.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

namespace cli {

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdout) std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// Whether `path` is, or will be, a file of its own: no link, device or pipe.
bool is_own_file(const std::string& path);

// Opens what a link, a device or a pipe leads to. Throws for a pipe that nobody reads.
File open_in_place(const std::string& path);

// Makes the file `name` for what becomes `path`, readable as widely as the file there. Null, with errno, where it fails;
// EEXIST where anything has that name.
File make_file(const std::string& name, const std::string& path);

// Renames `name` to `path`, whose permissions it takes over; false, with errno, where that fails.
bool put_in_place(const std::string& name, const std::string& path);

// Makes a file next to `path` under a temporary name, which is stored in `name` then. Throws.
File make_temporary(const std::string& path, std::string& name);

// At once or not at all; straight into what a link, a device or a pipe leads to. Throws.
void write_file(const std::string& path, const std::string& content);

}  // namespace cli
