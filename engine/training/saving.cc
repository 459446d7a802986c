#include "engine/training/saving.h"

#include <utility>

namespace tessera {

Result<std::unique_ptr<Saving>> Saving::create(std::shared_ptr<Trainer> trainer, const std::string& folder) {
  TSR_RETURN_IF_ERROR(Trainer::check_folder(folder));
  TSR_ASSIGN_OR_RETURN(auto lease, trainer->lease("tsr_checkpoint_begin"));
  return std::unique_ptr<Saving>(new Saving(std::move(trainer), std::move(lease), folder));
}

Saving::Saving(std::shared_ptr<Trainer> trainer, std::shared_ptr<const void> lease, const std::string& folder)
    : runtime_(trainer->runtime()),
      trainer_(std::move(trainer)),
      lease_(std::move(lease)),
      work_("saving", runtime_, [of = trainer_.get(), folder] { return of->write_checkpoint(folder); }) {}

Result<std::unique_ptr<Saving>> Saving::create_of_snapshot(const std::shared_ptr<Trainer>& trainer,
                                                           const std::string& folder, const Options& notes) {
  TSR_RETURN_IF_ERROR(Trainer::check_folder(folder));
  TSR_RETURN_IF_ERROR(trainer->usable());
  TSR_ASSIGN_OR_RETURN(CheckpointSnapshot snapshot, trainer->snapshot(notes));
  return std::unique_ptr<Saving>(new Saving(trainer->runtime(), std::move(snapshot), folder));
}

// std::function copies the work, but not the values.
Saving::Saving(std::shared_ptr<Runtime> runtime, CheckpointSnapshot snapshot, const std::string& folder)
    : runtime_(std::move(runtime)),
      work_("saving", runtime_,
            [of = std::make_shared<const CheckpointSnapshot>(std::move(snapshot)), folder] {
              return of->write(folder);
            }) {}

Saving::~Saving() {
  if (lease_ && in_creating_process()) trainer_->cancel();
}

Status Saving::finish() {
  TSR_ASSIGN_OR_RETURN(WrittenCheckpoint written, work_.finish());
  return written.commit();
}

Status Saving::step() {
  const Status status = work_.step();
  if (!status.ok() || work_.done() == 1) lease_ = nullptr;
  return status;
}

}  // namespace tessera
