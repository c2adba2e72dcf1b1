#include "parallel/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/signals.h"
#include "runtime/files/sha256.h"

namespace shoal {
namespace {

using Json = nlohmann::json;

constexpr int64_t kManifestBytesPerTensor = 512;
constexpr int64_t kSpareBytes = int64_t{1} << 20;
/// The data of each shard begins aligned in the staging memory.
constexpr int64_t kStagingAlignment = 64;

std::string describe_values(const std::vector<ManifestValue>& values) {
  std::string text;
  for (const ManifestValue& value : values) {
    text += json_quote(value.name + " = " + describe_value(value)) + "\n";
  }
  return text;
}

/// What `work` threw, as text; empty if it did not.
template <typename Work>
std::string failure_of(const Work& work) {
  try {
    work();
    return "";
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.empty() ? "unknown failure" : text;
  }
}

int64_t staged_bytes(const ShardLayout& layout) {
  const auto bytes = static_cast<int64_t>(layout.data_bytes());
  return (bytes + kStagingAlignment - 1) / kStagingAlignment * kStagingAlignment;
}

/// A rank's report to rank 0 on its save: why it failed, or the checksums of its shards.
std::string encode_reports(const std::vector<ShardReport>& reports, const std::string& error) {
  Json shards = Json::array();
  for (const ShardReport& report : reports) {
    shards.push_back({{"blocks", report.file.block_crcs}, {"tensors", report.tensor_crcs}});
  }
  const Json json{{"error", error}, {"shards", shards}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Throws the first failure among the ranks' reports, with its rank.
void require_written(const std::vector<std::string>& reports) {
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const std::string error = Json::parse(reports[rank]).at("error");
    if (!error.empty()) throw StorageError(fmt::format("rank {}: {}", rank, error));
  }
}

/// Collective. The path that `work` returns on rank 0, or why it failed there.
template <typename Work>
std::pair<std::string, std::string> path_or_failure(Communicator& world, const Work& work) {
  std::string path, failure;
  if (world.rank() == 0) failure = failure_of([&] { path = work(); });
  path = broadcast_text(world, std::move(path));
  return {std::move(path), broadcast_text(world, std::move(failure))};
}

}  // namespace

CheckpointWriter::CheckpointWriter(Options options, Communicator& world, FileSystem& files)
    : options_(std::move(options)),
      world_(world),
      files_(files),
      last_step_(options_.resumed_step),
      staging_(options_.warn, [this](int64_t bytes) {
        return Staging::pinned_memory(bytes, options_.available_bytes());
      }) {
  if (world_.rank() != 0) return;
  warn_on_failure("what an interrupted save left stays: ",
                  [&] { remove_leftovers(files_, options_.folder); });
}

CheckpointWriter::~CheckpointWriter() {
  if (writer_.joinable()) writer_.join();
  join_cleaner();
}

void CheckpointWriter::begin(Stateful& state, const SaveInfo& info) {
  TORCH_CHECK(!in_flight(), "a save begins while another is in flight");
  join_cleaner();
  StateList list = list_state(state);
  update_plan(list);
  pending_ = Pending{info, "", "", false, std::move(list.values)};
  if (info.step == last_step_) {
    pending_->already_there = true;
    return;
  }
  lay_out(info.step);
  prepare_folder();
  if (!pending_->failure.empty()) return;
  stage(list);
  write_shards_in_background();
}

void CheckpointWriter::update_plan(const StateList& list) {
  const std::string own = describe_entries(list.entries());
  const std::vector<std::string> hashes =
      gather_text(world_, sha256_hex(own) + sha256_hex(describe_values(list.values)));
  require_equal_values(hashes, list);
  if (hashes == list_hashes_) return;
  plan_ = plan_shards(plan_save(gather_text(world_, own)));
  list_hashes_ = hashes;
}

// A value of which each rank has its own would be lost but for rank 0's.
void CheckpointWriter::require_equal_values(const std::vector<std::string>& hashes,
                                            const StateList& list) {
  constexpr size_t kHashDigits = 64;
  const auto other = std::find_if(hashes.begin(), hashes.end(), [&](const std::string& hash) {
    return hash.substr(kHashDigits) != hashes[0].substr(kHashDigits);
  });
  if (other == hashes.end()) return;
  const std::vector<std::string> texts = gather_text(world_, describe_values(list.values));
  const size_t rank = static_cast<size_t>(other - hashes.begin());
  std::istringstream lines(texts[0]), other_lines(texts[rank]);
  std::string line, other_line;
  while (line == other_line) {  // ends, since the texts' hashes differ
    std::getline(lines, line);
    std::getline(other_lines, other_line);
  }
  throw Error(ExitCode::kDivergence,
              fmt::format("a value of the state differs between ranks: {} on rank 0, {} on rank {}",
                          line, other_line, rank));
}

void CheckpointWriter::lay_out(int64_t step) {
  layouts_.clear();
  const auto count = static_cast<int64_t>(plan_.size());
  for (int64_t i = 0; i < count; ++i) {
    layouts_.push_back(
        lay_out_shard(plan_[static_cast<size_t>(i)].entries, options_.run_id, step, i, count));
  }
}

std::vector<size_t> CheckpointWriter::own_shards() const {
  std::vector<size_t> shards;
  for (size_t i = 0; i < plan_.size(); ++i) {
    if (plan_[i].rank == world_.rank()) shards.push_back(i);
  }
  return shards;
}

int64_t CheckpointWriter::total_bytes() const {
  uint64_t bytes = 0;
  for (const ShardLayout& layout : layouts_) bytes += layout.file_bytes();
  return static_cast<int64_t>(bytes);
}

void CheckpointWriter::prepare_folder() {
  std::tie(pending_->temporary, pending_->failure) = path_or_failure(world_, [&] {
    int64_t tensors = 0;
    for (const auto& shard : plan_) tensors += static_cast<int64_t>(shard.entries.size());
    const int64_t needed = total_bytes() + tensors * kManifestBytesPerTensor + kSpareBytes;
    require_free_bytes(files_, parent_path(options_.folder), needed,
                       fmt::format("checkpoint of step {}", pending_->info.step));
    return make_save_folder(files_, options_.folder, pending_->info.step);
  });
}

void CheckpointWriter::stage(const StateList& list) {
  std::vector<Staging::Part> parts;
  int64_t begin = 0;
  for (const size_t shard : own_shards()) {
    for (const SafetensorsEntry& entry : layouts_[shard].entries) {
      if (entry.begin == entry.end) continue;
      parts.push_back({list.find(entry.name).value, begin + static_cast<int64_t>(entry.begin)});
    }
    begin += staged_bytes(layouts_[shard]);
  }
  staging_.copy(parts, begin);
}

void CheckpointWriter::write_shards_in_background() {
  reports_.clear();
  write_error_.clear();
  written_.store(false, std::memory_order_release);
  const auto write = [this, shards = own_shards()] {
    write_error_ = failure_of([&] {
      const char* begin = staging_.wait();
      for (const size_t shard : shards) {
        const std::string_view data(begin, layouts_[shard].data_bytes());
        reports_.push_back(write_shard(files_, pending_->temporary, layouts_[shard], data));
        begin += staged_bytes(layouts_[shard]);
      }
    });
    written_.store(true, std::memory_order_release);
  };
  const std::string refused =
      failure_of([&] { writer_ = start_thread("the writing of a checkpoint", write); });
  if (refused.empty()) return;
  write_error_ = refused;
  written_.store(true, std::memory_order_release);
}

SaveOutcome CheckpointWriter::commit() {
  TORCH_CHECK(in_flight(), "no save is in flight");
  if (writer_.joinable()) writer_.join();
  options_.throw_if_failed();  // behind the copies, which the writer has waited for
  SaveOutcome outcome{false, pending_->info.step, "", pending_->failure, total_bytes(), true};
  if (pending_->already_there) {
    outcome = {true, pending_->info.step, options_.folder + "/" + step_folder(outcome.step), "", 0,
               false};
  } else if (pending_->failure.empty()) {
    const std::vector<std::string> reports =
        gather_text(world_, encode_reports(reports_, write_error_));
    std::tie(outcome.path, outcome.error) =
        path_or_failure(world_, [&] { return commit_on_root(reports); });
    outcome.ok = outcome.error.empty();
  }
  if (outcome.ok) last_step_ = outcome.step;
  pending_.reset();
  if (outcome.ok && outcome.wrote && world_.rank() == 0) clean_in_background();
  return outcome;
}

Manifest CheckpointWriter::make_manifest(const std::vector<std::string>& reports) const {
  Manifest manifest;
  manifest.run_id = options_.run_id;
  manifest.step = pending_->info.step;
  manifest.samples = pending_->info.samples;
  manifest.score = pending_->info.score;
  manifest.parent = last_step_.has_value() ? step_folder(*last_step_) : "";
  manifest.recipe = options_.recipe;
  manifest.written_by = options_.written_by;
  manifest.values = pending_->values;
  std::vector<Json> of_rank;
  for (const std::string& text : reports) of_rank.push_back(Json::parse(text).at("shards"));
  std::vector<size_t> next(reports.size(), 0);
  for (size_t i = 0; i < plan_.size(); ++i) {
    const auto rank = static_cast<size_t>(plan_[i].rank);
    const Json& json = of_rank[rank].at(next[rank]++);
    const ManifestFile file{layouts_[i].name, layouts_[i].file_bytes(), json.at("blocks")};
    add_shard(manifest, layouts_[i], {file, json.at("tensors")});
  }
  std::ranges::sort(manifest.tensors, {}, &ManifestTensor::name);
  return manifest;
}

std::string CheckpointWriter::commit_on_root(const std::vector<std::string>& reports) {
  std::string path;
  try {
    require_written(reports);
    path = commit_checkpoint(files_, options_.folder, pending_->temporary, make_manifest(reports));
  } catch (const std::exception&) {
    warn_on_failure("what the failed save left stays: ",
                    [&] { remove_folder(files_, pending_->temporary); });
    throw;
  }
  warn_on_failure("LATEST was not written: ",
                  [&] { write_latest(files_, options_.folder, pending_->info.step); });
  return path;
}

void CheckpointWriter::warn_on_failure(const char* consequence,
                                       const std::function<void()>& work) const {
  const std::string failure = failure_of(work);
  if (!failure.empty()) options_.warn(consequence + failure);
}

void CheckpointWriter::clean_in_background() {
  const Retention retention{*last_step_, options_.keep_last, options_.keep_best,
                            options_.resumed_step};
  const auto clean = [this, retention] {
    clean_error_ = failure_of([&] {
      const std::string left = remove_old_checkpoints(files_, options_.folder, retention);
      remove_leftovers(files_, options_.folder);
      if (!left.empty()) throw StorageError(left);
    });
  };
  const std::string refused =
      failure_of([&] { cleaner_ = start_thread("the removal of old checkpoints", clean); });
  if (!refused.empty()) clean_error_ = refused;
}

void CheckpointWriter::join_cleaner() {
  if (cleaner_.joinable()) cleaner_.join();
  const std::string error = std::exchange(clean_error_, "");
  if (error.empty() || error == std::exchange(last_clean_error_, error)) return;
  options_.warn("older checkpoints stay: " + error);
}

SaveOutcome CheckpointWriter::add_score(double score) {
  TORCH_CHECK(!in_flight(), "a score is added while a save is in flight");
  join_cleaner();
  SaveOutcome outcome{false, last_step_.value(), "", "", 0, false};
  std::tie(outcome.path, outcome.error) = path_or_failure(
      world_, [&] { return write_score(files_, options_.folder, outcome.step, score); });
  outcome.ok = outcome.error.empty();
  return outcome;
}

SaveOutcome CheckpointWriter::save(Stateful& state, const SaveInfo& info) {
  begin(state, info);
  SaveOutcome outcome = commit();
  join_cleaner();
  return outcome;
}

void SaveFailures::record(const SaveOutcome& outcome, bool is_final) {
  if (outcome.ok) {
    in_a_row_ = 0;
    return;
  }
  ++total_;
  ++in_a_row_;
  if (is_final) {
    throw StorageError("the last checkpoint could not be saved: " + outcome.error);
  }
  if (in_a_row_ >= kMostFailedSaves) {
    throw StorageError(
        fmt::format("{} checkpoints in a row could not be saved: {}", in_a_row_, outcome.error));
  }
}

}  // namespace shoal
