#include "parallel/comm/communicator.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <set>
#include <utility>

#include "runtime/base/text.h"

namespace shoal {

int64_t sum(const RowCounts& rows) { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }

Pending::Pending(std::function<void()> finish, std::vector<torch::Tensor> buffers)
    : finish_(std::move(finish)), buffers_(std::move(buffers)) {}

Pending::Pending(Pending&& other) noexcept
    : finish_(std::exchange(other.finish_, nullptr)), buffers_(std::move(other.buffers_)) {}

Pending& Pending::operator=(Pending&& other) noexcept {
  if (this == &other) return *this;
  wait();
  finish_ = std::exchange(other.finish_, nullptr);
  buffers_ = std::move(other.buffers_);
  return *this;
}

Pending::~Pending() {
  if (!finish_) return;
  try {
    wait();
  } catch (...) {
    if (std::uncaught_exceptions() == 0) std::terminate();
  }
}

void Pending::wait() {
  if (!finish_) return;
  // Cleared first: a collective that failed has nothing left to wait for.
  const std::function<void()> finish = std::exchange(finish_, nullptr);
  finish();
  buffers_.clear();
}

void all_reduce(Communicator& comm, torch::Tensor buffer, ReduceOp op) {
  comm.start_all_reduce(std::move(buffer), op).wait();
}

void broadcast(Communicator& comm, torch::Tensor buffer, int64_t root) {
  comm.start_broadcast(std::move(buffer), root).wait();
}

std::vector<std::string> gather_text(Communicator& comm, const std::string& text) {
  const torch::Tensor own_length =
      torch::full({1}, static_cast<int64_t>(text.size()), torch::kLong);
  const torch::Tensor lengths = torch::empty({comm.size()}, torch::kLong);
  comm.start_all_gather(own_length, lengths, RowCounts(comm.size(), 1)).wait();

  const RowCounts bytes(lengths.data_ptr<int64_t>(), lengths.data_ptr<int64_t>() + comm.size());
  const torch::Tensor own = torch::empty({static_cast<int64_t>(text.size())}, torch::kByte);
  std::copy(text.begin(), text.end(), own.data_ptr<uint8_t>());
  const torch::Tensor all = torch::empty({sum(bytes)}, torch::kByte);
  comm.start_all_gather(own, all, bytes).wait();

  std::vector<std::string> texts;
  const auto* next = reinterpret_cast<const char*>(all.data_ptr<uint8_t>());
  for (const int64_t length : bytes) {
    texts.emplace_back(next, static_cast<size_t>(length));
    next += length;
  }
  return texts;
}

std::vector<std::string> gather_lines(Communicator& comm, const std::vector<std::string>& lines) {
  std::set<std::string> all;
  for (const std::string& text : gather_text(comm, join_words(lines, "\n"))) {
    for (std::string& line : split(text, '\n')) all.insert(std::move(line));
  }
  return {all.begin(), all.end()};
}

std::string broadcast_text(Communicator& comm, std::string text, int64_t root) {
  const torch::Tensor length = torch::full({1}, static_cast<int64_t>(text.size()), torch::kLong);
  broadcast(comm, length, root);
  text.resize(static_cast<size_t>(length.item<int64_t>()));
  broadcast(comm, torch::from_blob(text.data(), length.item<int64_t>(), torch::kByte), root);
  return text;
}

}  // namespace shoal
