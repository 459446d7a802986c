// tessera serve: executes tessera-serve, a program of its own, as git does with its commands.
#include "serve.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "command.h"

namespace cli {

namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "tessera-serve";

// The program next to this one; "" if this one's path is unknown.
std::string path_beside() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? "" : (self.parent_path() / kProgram).string();
}

}  // namespace

int execute_service(char** words) {
  std::string name = kProgram;
  words[0] = name.data();
  const std::string path = path_beside();
  if (!path.empty()) execv(path.c_str(), words);
  const int beside = path.empty() ? ENOENT : errno;
  if (beside == ENOENT) execvp(kProgram, words);
  const int error = beside == ENOENT ? errno : beside;
  std::cerr << "tessera: " << (path.empty() ? name : path) << " cannot be executed: " << std::strerror(error);
  if (error == ENOENT) std::cerr << "; the service is installed apart: the package tessera-service, or `go build` in service/";
  std::cerr << '\n';
  return 1;
}

void register_serve(CLI::App& app) {
  app.add_subcommand("serve", "serve models to clients of OpenAI, Anthropic and Ollama (tessera-serve)")->allow_extras();
}

}  // namespace cli
