// Checkpoint folder:
//   manifest        envelope + index (schema/checkpoint.fbs): step, values, each tensor's place and xxh3, and the
//                   xxh3 of parameters that are left out
//   shard-00000…    the tensors' bytes, each tensor whole and 64-byte aligned
// How it is put in place: serialize/checkpoint_folder.h.
#include "serialize/checkpoint.h"

#include <unordered_map>
#include <unordered_set>

#include "graph/base/hash.h"
#include "graph/base/nearest_hint.h"
#include "graph/base/text.h"
#include "serialize/atomic_file.h"
#include "serialize/checkpoint_folder.h"
#include "serialize/envelope.h"
#include "serialize/file_limits.h"
#include "serialize/flatbuffer_reader.h"
#include "serialize/schema/checkpoint_generated.h"
#include "serialize/tensor_record.h"

namespace tessera {

struct CheckpointFiles {
  std::vector<std::shared_ptr<const ByteSource>> shards;
  std::vector<TensorRecord> records;
  std::unordered_map<std::string_view, const TensorRecord*> by_name;  // into `records`
};

namespace {

constexpr std::string_view kWhat = "checkpoint manifest";
// Version of manifests that name a base; earlier readers would miss parameters.
constexpr uint32_t kBaseVersion = 3;

Status write_manifest(const std::string& path, const CheckpointInfo& info,
                      std::span<const TensorRecord> records, std::span<const uint64_t> shard_bytes) {
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<file::TensorData>> tensors;
  for (const TensorRecord& record : records) tensors.push_back(write_record(builder, record));
  auto values = write_key_values(builder, info.values);
  auto stored_tensors = builder.CreateVector(tensors);
  auto sizes = builder.CreateVector(shard_bytes.data(), shard_bytes.size());
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<file::BaseTensor>>> base;
  if (!info.base.empty()) {
    std::vector<flatbuffers::Offset<file::BaseTensor>> entries;
    for (const BaseTensor& it : info.base) {
      auto name = builder.CreateString(it.name);
      entries.push_back(file::CreateBaseTensor(builder, name, write_type(builder, it.type), it.xxh3));
    }
    base = builder.CreateVector(entries);
  }
  file::FinishCheckpointBuffer(
      builder, file::CreateCheckpoint(builder, info.step, values, stored_tensors, sizes, base));
  const std::span<const std::byte> index = finished_bytes(builder);
  const Envelope envelope = make_envelope(kCheckpointMagic, sizeof(Envelope) + index.size(), sizeof(Envelope),
                                          index, info.base.empty() ? 1 : kBaseVersion);
  TSR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  TSR_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(&envelope, 1))));
  TSR_RETURN_IF_ERROR(file.append(index));
  return file.commit();
}

// kCorrupt for a duplicate name, here or among the tensors, and for impossible sizes.
Status check_base(std::span<const BaseTensor> base, std::span<const TensorRecord> records) {
  std::unordered_set<std::string_view> names;
  for (const TensorRecord& record : records) names.insert(record.name);
  int64_t total = 0;
  for (const BaseTensor& it : base) {
    if (!names.insert(it.name).second)
      return Status(StatusCode::kCorrupt, format("two tensors are named '{}'", it.name));
    if (__builtin_add_overflow(total, bytes(it.type), &total))
      return Status(StatusCode::kCorrupt, "the parameters left out take more bytes than a number holds");
  }
  return {};
}

Status write_contents(const std::string& folder, const CheckpointInfo& info, const ReadTensor& read) {
  std::vector<TensorRecord> records;
  std::vector<uint64_t> shard_bytes;
  std::vector<std::byte> contents;
  std::optional<AtomicFile> shard;
  auto close_shard = [&]() -> Status {
    if (!shard) return {};
    shard_bytes.push_back(shard->position());
    TSR_RETURN_IF_ERROR(shard->commit());
    shard.reset();
    return {};
  };
  for (const auto& [name, type] : info.tensors) {
    if (!type.shape.is_concrete()) {
      return Status(StatusCode::kInvalidArgument, format("tensor '{}' {} still has symbols", name, type));
    }
    if (shard && shard->position() >= kShardBytes) TSR_RETURN_IF_ERROR(close_shard());
    if (!shard) {
      TSR_ASSIGN_OR_RETURN(AtomicFile file,
                           AtomicFile::create(folder + "/" + shard_name(shard_bytes.size())));
      shard.emplace(std::move(file));
    }
    contents.resize(static_cast<size_t>(bytes(type)));
    TSR_RETURN_IF_ERROR(read(name, contents));
    TSR_ASSIGN_OR_RETURN(TensorRecord record, append_tensor(*shard, name, type, contents, false));
    record.shard = static_cast<uint32_t>(shard_bytes.size());
    records.push_back(std::move(record));
  }
  TSR_RETURN_IF_ERROR(close_shard());
  TSR_RETURN_IF_ERROR(check_records(records));  // duplicate names
  TSR_RETURN_IF_ERROR(check_base(info.base, records));
  TSR_RETURN_IF_ERROR(write_manifest(folder + "/manifest", info, records, shard_bytes));
  return sync_folder(folder);
}

Result<std::shared_ptr<CheckpointFiles>> read_files(const std::string& folder, CheckpointInfo& info) {
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<const ByteSource> source, open_file(folder + "/manifest"));
  TSR_ASSIGN_OR_RETURN(IndexBytes index, read_index(std::move(source), kCheckpointMagic, kWhat));
  TSR_ASSIGN_OR_RETURN(const file::Checkpoint* checkpoint,
                       FlatBufferReader::root<file::Checkpoint>(index, file::CheckpointIdentifier(), kWhat));
  FlatBufferReader reader(index);
  info.step = checkpoint->step();
  TSR_ASSIGN_OR_RETURN(info.values, reader.key_values(checkpoint->values()));
  TSR_ASSIGN_OR_RETURN(std::vector<uint64_t> shard_bytes,
                       reader.numbers<uint64_t>(checkpoint->shard_bytes()));
  if (info.step < 0 || shard_bytes.size() > kMaxShards) {
    return Status(StatusCode::kCorrupt,
                  format("{}: step {}, {} shards", kWhat, info.step, shard_bytes.size()));
  }
  auto files = std::make_shared<CheckpointFiles>();
  for (size_t i = 0; i < shard_bytes.size(); ++i) {
    TSR_ASSIGN_OR_RETURN(std::shared_ptr<const ByteSource> shard, open_file(folder + "/" + shard_name(i)));
    if (static_cast<uint64_t>(shard->size()) != shard_bytes[i]) {
      return Status(StatusCode::kCorrupt, format("{} has {} bytes, the manifest says {}", shard_name(i),
                                                 shard->size(), shard_bytes[i]));
    }
    files->shards.push_back(std::move(shard));
  }
  for (size_t i = 0; i < size_of(checkpoint->tensors()); ++i) {
    const file::TensorData& stored = *checkpoint->tensors()->Get(static_cast<uint32_t>(i));
    TSR_ASSIGN_OR_RETURN(TensorRecord record, reader.record(stored));
    if (record.shard >= shard_bytes.size()) {
      return Status(StatusCode::kCorrupt, format("tensor '{}' is in shard {} of {}", record.name,
                                                 record.shard, shard_bytes.size()));
    }
    TSR_RETURN_IF_ERROR(check_record(record, 0, shard_bytes[record.shard]));
    info.tensors.emplace_back(record.name, record.type);
    files->records.push_back(std::move(record));
  }
  TSR_RETURN_IF_ERROR(check_records(files->records));
  for (size_t i = 0; i < size_of(checkpoint->base()); ++i) {
    const file::BaseTensor& stored = *checkpoint->base()->Get(static_cast<uint32_t>(i));
    TSR_RETURN_IF_ERROR(reader.take_table());
    BaseTensor& it = info.base.emplace_back();
    TSR_ASSIGN_OR_RETURN(it.name, reader.text(stored.name()));
    TSR_ASSIGN_OR_RETURN(it.type, reader.type(*stored.type(), 0));
    it.xxh3 = stored.xxh3();
  }
  TSR_RETURN_IF_ERROR(check_base(info.base, files->records));
  for (const TensorRecord& record : files->records) files->by_name.emplace(record.name, &record);
  return files;
}

}  // namespace

struct WrittenCheckpoint::Impl {
  explicit Impl(std::string folder) : saving(std::move(folder)) {}
  SavingFolder saving;
};

WrittenCheckpoint::WrittenCheckpoint() = default;
WrittenCheckpoint::~WrittenCheckpoint() = default;
WrittenCheckpoint::WrittenCheckpoint(WrittenCheckpoint&&) noexcept = default;
WrittenCheckpoint& WrittenCheckpoint::operator=(WrittenCheckpoint&&) noexcept = default;

Status WrittenCheckpoint::commit() { return impl_->saving.put_in_place(); }

Result<WrittenCheckpoint> write_checkpoint(const std::string& folder_as_given, const CheckpointInfo& info,
                                           const ReadTensor& read) {
  if (folder_as_given.empty())
    return Status(StatusCode::kInvalidArgument, "the name of the checkpoint's folder is empty");
  TSR_RETURN_IF_ERROR(check_storable(info));
  const std::string folder = real_folder(folder_as_given);
  TSR_RETURN_IF_ERROR(finish_cut_save(folder));
  TSR_RETURN_IF_ERROR(check_replaceable(folder));
  WrittenCheckpoint written;
  written.impl_ = std::make_unique<WrittenCheckpoint::Impl>(folder);
  TSR_RETURN_IF_ERROR(written.impl_->saving.open_empty());
  TSR_RETURN_IF_ERROR(write_contents(written.impl_->saving.path(), info, read));
  return written;
}

Status check_checkpoint_folder(const std::string& folder_as_given) {
  if (folder_as_given.empty())
    return Status(StatusCode::kInvalidArgument, "the name of the checkpoint's folder is empty");
  const std::string folder = real_folder(folder_as_given);
  TSR_RETURN_IF_ERROR(finish_cut_save(folder));
  TSR_RETURN_IF_ERROR(check_replaceable(folder));
  SavingFolder saving(folder);
  TSR_RETURN_IF_ERROR(saving.open_empty());
  return AtomicFile::check(saving.path() + "/manifest");
}

uint64_t base_fingerprint(std::span<const BaseTensor> base) {
  Hash hash;
  for (const BaseTensor& it : base) {
    hash.add(it.name);
    hash.add(to_text(it.type));
    hash.add(it.xxh3);
  }
  return hash.value();
}

Result<CheckpointReader> CheckpointReader::open(const std::string& folder_as_given) {
  const std::string folder = readable_folder(real_folder(folder_as_given));
  CheckpointReader reader;
  Result<std::shared_ptr<CheckpointFiles>> files = read_files(folder, reader.info_);
  if (!files.ok()) return files.status().with_context(folder);
  reader.files_ = *files;
  return reader;
}

Result<HostTensor> CheckpointReader::read(std::string_view name) const {
  auto found = files_->by_name.find(name);
  if (found == files_->by_name.end()) {
    std::vector<std::string> names;
    for (const TensorRecord& record : files_->records) names.push_back(record.name);
    return Status(StatusCode::kNotFound, format("the checkpoint has no tensor '{}'{}", name,
                                                nearest_hint(name, names)));
  }
  return read_tensor(files_->shards[found->second->shard], *found->second, true);
}

}  // namespace tessera
