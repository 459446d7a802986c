// Checkpoints that a run keeps next to its newest one, sharing files with it by hard links (files of a checkpoint never change):
//   FOLDER           the newest
//   FOLDER.step-N    one of the newest K
//   FOLDER.best      the best
// Each is there whole or not at all. Foreign files and links are neither followed nor removed: kIo, with what is in the way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

std::string best_folder(const std::string& folder);
std::string step_folder(const std::string& folder, int64_t step);
// The steps N of FOLDER.step-N, the newest first.
std::vector<int64_t> kept_steps(const std::string& folder);

// Makes `to`, in place of an earlier checkpoint there, with the files of the checkpoint `from`.
Status link_checkpoint(const std::string& from, const std::string& to);
// Removes a checkpoint, where there is one.
Status discard_checkpoint(const std::string& path);
// Removes what killed runs left half made of FOLDER.best and FOLDER.step-N.
Status remove_unfinished_links(const std::string& folder);

}  // namespace tessera
