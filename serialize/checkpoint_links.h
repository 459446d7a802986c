// Checkpoints kept next to a run's newest one, which share files by hard links (a checkpoint's files never change):
//   FOLDER           the newest
//   FOLDER.step-N    one of the newest K
//   FOLDER.best      the best
// Each is complete or absent. Foreign files and links are neither followed nor removed: kIo names them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

std::string best_folder(const std::string& folder);
std::string step_folder(const std::string& folder, int64_t step);
// The steps N of FOLDER.step-N, newest first.
std::vector<int64_t> kept_steps(const std::string& folder);

// Makes `to` a checkpoint with the files of `from`, replacing an earlier one.
Status link_checkpoint(const std::string& from, const std::string& to);
// Removes a checkpoint, if present.
Status discard_checkpoint(const std::string& path);
// Removes partial FOLDER.best and FOLDER.step-N of killed runs.
Status remove_unfinished_links(const std::string& folder);

}  // namespace tessera
