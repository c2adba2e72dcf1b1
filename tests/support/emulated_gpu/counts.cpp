#include "tests/support/emulated_gpu/counts.h"

#include <array>
#include <iomanip>
#include <mutex>
#include <sstream>

namespace emulated_gpu {
namespace {

std::mutex counts_mutex;
std::array<Counts, kNumDevices>& device_counts() {
  static auto* instance = new std::array<Counts, kNumDevices>;  // used by static objects
  return *instance;
}

thread_local int device_index = 0;
thread_local int num_uncounted = 0;

template <class Change>
void change_counts(const Change& change) {
  if (num_uncounted > 0) return;
  const std::lock_guard lock(counts_mutex);
  change(device_counts()[static_cast<size_t>(device_index)]);
}

void add(Copies& copies, int64_t bytes) {
  ++copies.number;
  copies.bytes += bytes;
}

Copies combined(const Copies& a, const Copies& b, int sign) {
  return {a.number + sign * b.number, a.bytes + sign * b.bytes};
}

Counts combined(const Counts& a, const Counts& b, int sign) {
  Counts result;
  result.launches = a.launches;
  for (const auto& [name, number] : b.launches) result.launches[name] += sign * number;
  std::erase_if(result.launches, [](const auto& entry) { return entry.second == 0; });
  result.to_gpu = combined(a.to_gpu, b.to_gpu, sign);
  result.to_gpu_pinned = combined(a.to_gpu_pinned, b.to_gpu_pinned, sign);
  result.to_host = combined(a.to_host, b.to_host, sign);
  result.to_host_pinned = combined(a.to_host_pinned, b.to_host_pinned, sign);
  result.waits = a.waits + sign * b.waits;
  return result;
}

std::string cell_of(const Copies& copies) {
  return std::to_string(copies.number) + " (" + std::to_string(copies.bytes) + " B)";
}

}  // namespace

int64_t Counts::num_launches() const {
  int64_t sum = 0;
  for (const auto& [name, number] : launches) sum += number;
  return sum;
}

Counts Counts::without(const std::vector<std::string>& names) const {
  Counts result = *this;
  for (const std::string& name : names) result.launches.erase(name);
  return result;
}

Counts Counts::operator+(const Counts& other) const { return combined(*this, other, 1); }
Counts Counts::operator-(const Counts& before) const { return combined(*this, before, -1); }

Counts counts() {
  const std::lock_guard lock(counts_mutex);
  return device_counts()[static_cast<size_t>(device_index)];
}

Counts counts_of(const std::function<void()>& body) {
  const Counts before = counts();
  body();
  return counts() - before;
}

std::string table_of(const std::vector<std::pair<std::string, Counts>>& parts) {
  constexpr int kName = 28, kColumn = 18;
  std::ostringstream text;
  text << std::left << std::setw(kName) << "part" << std::right << std::setw(10) << "launches";
  for (const char* title : {"to GPU", "to GPU pinned", "to host", "to host pinned"}) {
    text << std::setw(kColumn) << title;
  }
  text << std::setw(8) << "waits"
       << "\n";
  for (const auto& [name, made] : parts) {
    text << std::left << std::setw(kName) << name << std::right << std::setw(10)
         << made.num_launches();
    for (const Copies* copies :
         {&made.to_gpu, &made.to_gpu_pinned, &made.to_host, &made.to_host_pinned}) {
      text << std::setw(kColumn) << cell_of(*copies);
    }
    text << std::setw(8) << made.waits << "\n";
  }
  for (const auto& [name, made] : parts) {
    text << name << ":";
    for (const auto& [launch, number] : made.launches) text << " " << number << " x " << launch;
    text << "\n";
  }
  return text.str();
}

Uncounted::Uncounted() { ++num_uncounted; }
Uncounted::~Uncounted() { --num_uncounted; }

void count_launch(const std::string& name) {
  change_counts([&](Counts& counts) { ++counts.launches[name]; });
}
void count_copy_to_gpu(bool is_pinned, int64_t bytes) {
  change_counts(
      [&](Counts& counts) { add(is_pinned ? counts.to_gpu_pinned : counts.to_gpu, bytes); });
}
void count_copy_to_host(bool is_pinned, int64_t bytes) {
  change_counts(
      [&](Counts& counts) { add(is_pinned ? counts.to_host_pinned : counts.to_host, bytes); });
}
void count_wait() {
  change_counts([](Counts& counts) { ++counts.waits; });
}

int current_device_index() { return device_index; }
void set_current_device_index(int index) { device_index = index; }

}  // namespace emulated_gpu
