#include "launch/job/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "runtime/base/text.h"
#include "runtime/records/metrics.h"

namespace shoal {
namespace {

constexpr size_t kBarCells = 20;
constexpr int64_t kFewestColumns = 40;  ///< room for step and time left
constexpr int64_t kUsualColumns = 100;  ///< columns of a terminal that does not tell

/// A part of the line. Where the line is too long, the part of the highest `rank` is left out
/// first; parts of rank 0 stay.
struct LinePart {
  int rank = 0;
  std::string text;
};

std::string bar(const Progress& progress, size_t num_cells) {
  const double done = static_cast<double>(progress.step) /
                      static_cast<double>(std::max<int64_t>(1, progress.total_steps));
  const double full = std::clamp(done, 0.0, 1.0) * static_cast<double>(num_cells);
  std::string cells(static_cast<size_t>(std::lround(full)), '#');
  cells.resize(num_cells, '-');
  return "[" + cells + "]";
}

std::vector<LinePart> parts_of_line(const Progress& p) {
  const double loss = without_sign_if_nan(p.loss), grad_norm = without_sign_if_nan(p.grad_norm);
  const LinePart eta{0, fmt::format("eta {}", human_seconds(p.seconds_left))};
  std::vector<LinePart> parts{{0, fmt::format("step {}/{}", p.step, p.total_steps)}};
  if (!p.activity.empty()) parts.push_back({0, p.activity});
  if (!p.is_measured) {
    parts.push_back(eta);
    return parts;
  }
  parts.push_back({1, fmt::format("loss {:.4f}", loss)});
  parts.push_back({7, fmt::format("lr {:.2e}", p.lr)});
  parts.push_back({4, fmt::format("|g| {:.3f}", grad_norm)});
  parts.push_back({2, fmt::format("{:.0f} {}/s", p.items_per_second, p.unit)});
  if (p.ranks > 1) {
    const double share = p.items_per_second / static_cast<double>(p.ranks);
    parts.push_back({12, fmt::format("({:.0f}/rank)", share)});
  }
  if (p.dropped_share) parts.push_back({5, fmt::format("drop {:.1f}%", 100 * *p.dropped_share)});
  for (const std::string& shown : p.layers) parts.push_back({8, shown});
  if (p.load_max_over_mean) {
    parts.push_back({6, fmt::format("load {:.2f}", *p.load_max_over_mean)});
  }
  if (p.ranks > 1 && p.all_to_all_ms) {
    parts.push_back({10, fmt::format("a2a {:.1f}ms", *p.all_to_all_ms)});
  }
  if (p.mfu) parts.push_back({8, fmt::format("mfu {:.1f}%", 100 * *p.mfu)});
  parts.push_back({11, fmt::format("data {:.0f}%", 100 * p.data_wait_share)});
  parts.push_back({9, fmt::format("mem {}", human_bytes(p.memory_bytes))});
  parts.push_back(eta);
  return parts;
}

std::string joined(const std::vector<LinePart>& parts) {
  std::string line;
  for (const LinePart& part : parts) {
    // The share of a rank belongs to the rate before it.
    const bool is_aside = part.text.starts_with('(');
    line += (line.empty() ? "" : is_aside ? " " : "  ") + part.text;
  }
  return line;
}

}  // namespace

std::string share_done(const std::string& what, int64_t done, int64_t total) {
  return fmt::format("{} {}%", what, 100 * done / std::max<int64_t>(1, total));
}

std::string progress_line(const Progress& progress) { return joined(parts_of_line(progress)); }

std::string live_line(const Progress& progress, int64_t columns, bool has_bar) {
  const auto room = static_cast<size_t>(std::max<int64_t>(0, columns));
  std::vector<LinePart> parts = parts_of_line(progress);
  if (has_bar) parts.insert(parts.begin(), {3, bar(progress, kBarCells)});
  bool is_short = !has_bar;
  while (joined(parts).size() > room) {
    const auto last = std::ranges::max_element(parts, {}, &LinePart::rank);
    // The bar gives way in part before anything goes that is of use.
    if (!is_short && last->rank < 9) {
      parts.front().text = bar(progress, kBarCells / 2);
      is_short = true;
      continue;
    }
    if (last->rank == 0) break;
    parts.erase(last);
  }
  return joined(parts).substr(0, room);
}

Console::Console(std::FILE* stream, bool terminal, int64_t width, Clock::duration period)
    : stream_(stream),
      terminal_(terminal),
      width_(std::max(kFewestColumns, width)),
      period_(period),
      last_drawn_(Clock::now()) {}

void Console::write(const std::string& text) {
  const bool is_written = std::fputs(text.c_str(), stream_) >= 0 && std::fflush(stream_) == 0;
  if (is_written || !tell_lost_) return;
  std::exchange(tell_lost_, nullptr)(std::strerror(errno));
}

void Console::clear() { rewrite("", ""); }

void Console::show(const Progress& progress) {
  if (!terminal_) return print(progress_line(progress));
  const int64_t room = columns() - 1;
  rewrite(live_line(progress, room, /*has_bar=*/false) + "\n", live_line(progress, room));
  last_drawn_ = Clock::now();
}

void Console::pulse(const std::function<std::string(int64_t columns)>& line) {
  if (!terminal_ || Clock::now() - last_drawn_ < period_) return;
  rewrite("", line(columns() - 1));
  last_drawn_ = Clock::now();
}

void Console::print(const std::string& line) { rewrite(line + "\n", bar_); }

void Console::rewrite(const std::string& above, const std::string& bar) {
  // In one write, so that the bar does not flicker.
  const std::string text = (bar_.empty() ? "" : "\r\033[K") + above + bar;
  if (!text.empty()) write(text);
  bar_ = bar;
}

int64_t Console::columns() const {
  // Asked each time, since terminals change their size.
  return std::max(kFewestColumns, terminal_columns(fileno(stream_)).value_or(width_));
}

std::optional<int64_t> terminal_columns(int file) {
  winsize size{};
  const bool is_known = file >= 0 && ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? std::optional<int64_t>(size.ws_col) : std::nullopt;
}

Console make_console(std::optional<int64_t> columns) {
  const bool is_terminal = isatty(STDERR_FILENO) == 1;
  return Console(stderr, is_terminal || columns.has_value(), columns.value_or(kUsualColumns));
}

}  // namespace shoal
