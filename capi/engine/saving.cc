#include "capi/engine/saving.h"

#include <utility>

namespace tessera {

Result<std::unique_ptr<Saving>> Saving::create(std::shared_ptr<Trainer> trainer, const std::string& folder) {
  TSR_RETURN_IF_ERROR(Trainer::check_folder(folder));
  TSR_ASSIGN_OR_RETURN(auto lease, trainer->lease("tsr_saving_new"));
  return std::unique_ptr<Saving>(new Saving(std::move(trainer), std::move(lease), folder));
}

Saving::Saving(std::shared_ptr<Trainer> trainer, std::shared_ptr<const void> lease, const std::string& folder)
    : trainer_(std::move(trainer)),
      lease_(std::move(lease)),
      work_("saving", trainer_->runtime(), [of = trainer_.get(), folder] { return of->write_checkpoint(folder); }) {}

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
