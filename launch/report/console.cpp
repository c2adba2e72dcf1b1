#include "launch/report/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "runtime/base/metrics.h"

namespace shoal {
namespace {

constexpr size_t kBarCells = 20;

std::string bar(const Progress& progress) {
  const double done = static_cast<double>(progress.step) /
                      static_cast<double>(std::max<int64_t>(1, progress.total_steps));
  std::string cells(static_cast<size_t>(std::lround(std::clamp(done, 0.0, 1.0) * kBarCells)), '#');
  cells.resize(kBarCells, '-');
  return "[" + cells + "] ";
}

}  // namespace

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<int64_t>(std::lround(seconds));
  if (whole >= 3600) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

std::string human_bytes(double bytes) {
  constexpr double kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;
  if (bytes >= kGiB) return fmt::format("{:.1f} GiB", bytes / kGiB);
  if (bytes >= kMiB) return fmt::format("{:.0f} MiB", bytes / kMiB);
  if (bytes >= kKiB) return fmt::format("{:.0f} KiB", bytes / kKiB);
  return fmt::format("{:.0f} B", bytes);
}

std::string progress_line(const Progress& p) {
  const double loss = without_sign_if_nan(p.loss), grad_norm = without_sign_if_nan(p.grad_norm);
  std::string line =
      fmt::format("step {}/{}  loss {:.4f}  lr {:.2e}  |g| {:.3f}  {:.0f} {}/s", p.step,
                  p.total_steps, loss, p.lr, grad_norm, p.items_per_second, p.unit);
  if (p.ranks > 1) {
    line += fmt::format(" ({:.0f}/rank)", p.items_per_second / static_cast<double>(p.ranks));
  }
  if (p.dropped_share) line += fmt::format("  drop {:.1f}%", 100 * *p.dropped_share);
  if (p.gate_rate) line += fmt::format("  attend {:.1f}%", 100 * *p.gate_rate);
  if (p.load_max_over_mean) line += fmt::format("  load {:.2f}", *p.load_max_over_mean);
  if (p.ranks > 1 && p.all_to_all_ms) line += fmt::format("  a2a {:.1f}ms", *p.all_to_all_ms);
  if (p.mfu) line += fmt::format("  mfu {:.1f}%", 100 * *p.mfu);
  line +=
      fmt::format("  data {:.0f}%  mem {}  eta {}", 100 * p.data_wait_share,
                  human_bytes(static_cast<double>(p.memory_bytes)), human_seconds(p.seconds_left));
  return line;
}

std::string text_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string text;
  for (size_t index = 0; index < rows.size(); ++index) {
    std::string line;
    for (size_t column = 0; column < rows[index].size(); ++column) {
      line += fmt::format("{:<{}}  ", rows[index][column], widths[column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += "  " + line + "\n";
    if (index == 0) {
      size_t total = 0;
      for (const size_t width : widths) total += width + 2;
      text += "  " + std::string(total - 2, '-') + "\n";
    }
  }
  return text;
}

Console::Console(std::FILE* stream, bool terminal, int64_t width)
    : stream_(stream), terminal_(terminal), width_(std::max<int64_t>(40, width)) {}

void Console::write(const std::string& text) {
  const bool is_written = std::fputs(text.c_str(), stream_) >= 0 && std::fflush(stream_) == 0;
  if (is_written || !tell_lost_) return;
  std::exchange(tell_lost_, nullptr)(std::strerror(errno));
}

void Console::clear_bar() {
  if (bar_shown_) write("\r\033[K");
  bar_shown_ = false;
}

void Console::show(const Progress& progress) {
  if (!terminal_) {
    write(progress_line(progress) + "\n");
    return;
  }
  clear_bar();
  const std::string line = bar(progress) + progress_line(progress);
  write(line.substr(0, static_cast<size_t>(width_ - 1)));
  bar_shown_ = true;
}

void Console::print(const std::string& line) {
  clear_bar();
  write(line + "\n");
}

void Console::finish() {
  if (bar_shown_) write("\n");
  bar_shown_ = false;
}

Console make_console() {
  const bool terminal = isatty(STDERR_FILENO) == 1;
  winsize size{};
  const bool known = terminal && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return Console(stderr, terminal, known ? size.ws_col : 100);
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages_total = 0, pages_resident = 0;
  statm >> pages_total >> pages_resident;
  return pages_resident * sysconf(_SC_PAGESIZE);
}

}  // namespace shoal
