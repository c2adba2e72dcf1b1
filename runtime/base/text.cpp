#include "runtime/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

namespace shoal {
namespace {

constexpr std::size_t kMaxDistance = 2;

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before_last, last);
    std::swap(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitution = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::numeric_limits<std::size_t>::max();
  for (const std::string& candidate : candidates) {
    const std::size_t longer = std::max(word.size(), candidate.size());
    const std::size_t shorter = std::min(word.size(), candidate.size());
    if (longer - shorter > kMaxDistance) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance <= kMaxDistance && 2 * distance <= longer && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string best = nearest(word, candidates);
  return best.empty() ? "" : "; did you mean '" + best + "'?";
}

bool matches_glob(std::string_view text, std::string_view pattern) {
  // The last * tried, and how far the text was when it stood for nothing: what follows it may fit
  // later only if it takes in more.
  std::size_t at = 0, next = 0, star = std::string_view::npos, resumes_at = 0;
  while (at < text.size()) {
    if (next < pattern.size() && pattern[next] == '*') {
      star = next++;
      resumes_at = at;
    } else if (next < pattern.size() && (pattern[next] == '?' || pattern[next] == text[at])) {
      ++next;
      ++at;
    } else if (star != std::string_view::npos) {
      next = star + 1;
      at = ++resumes_at;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', next) == std::string_view::npos;
}

bool has_control_character(std::string_view text) {
  return std::ranges::any_of(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

std::string quoted_excerpt(std::string_view text) {
  constexpr size_t kMostShown = 80;
  std::string shown(text.substr(0, kMostShown));
  for (char& c : shown) c = c >= ' ' && c <= '~' ? c : '?';
  return "'" + shown + (text.size() > kMostShown ? "..." : "") + "'";
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

std::optional<int64_t> parse_digits(std::string_view text, int base) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number && !text.starts_with('-') ? std::optional(number) : std::nullopt;
}

std::string counted(int64_t number, std::string_view noun) {
  return std::to_string(number) + " " + std::string(noun) + (number == 1 ? "" : "s");
}

std::string grouped(double number) {
  std::string digits = fmt::format("{:.0f}", number);
  const size_t begin = digits.starts_with('-') ? 1 : 0;
  for (size_t at = digits.size(); at > begin + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds > 0 && seconds < 0.95) return fmt::format("{:.1f}s", std::max(0.1, seconds));
  const auto whole = static_cast<int64_t>(std::lround(seconds));
  if (whole >= 3600) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

std::string human_bytes(double bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 100 ? 0 : 1, kUnits[unit]);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string join_words(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
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

}  // namespace shoal
