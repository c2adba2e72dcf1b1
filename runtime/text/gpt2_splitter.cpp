#include "runtime/text/gpt2_splitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <stdexcept>

#include "runtime/base/text.h"
#include "runtime/base/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace shoal {
namespace {

// White_Space of Unicode, of which PCRE2's \s differs by U+180E. Stands for SPACES in the patterns.
constexpr std::string_view kSpaces =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

constexpr std::string_view kWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^SPACES\p{L}\p{N}]+)"
    R"(|[SPACES]+(?![^SPACES])|[SPACES]+)";

// A character before a safe cut, with the one behind it in sight. Words are maximal runs of
// letters, of numbers or of others, so that each ends where the kind changes; what needs care is
// - a space, which joins the run behind it, and in a run of spaces only the last one does;
// - an apostrophe, which a contraction joins to letters.
// A run that ends before a cut ends there whether or not the rest is in sight, and the pattern
// looks at nothing before a word.
constexpr std::string_view kCuts =
    R"(\p{L}(?=\P{L})|\p{N}(?=\P{N})|[^'SPACES\p{L}\p{N}](?=[SPACES\p{L}\p{N}])|'(?=[SPACES\p{N}]))";

[[noreturn]] void fail(const char* call, int error) {
  unsigned char text[256] = "";
  pcre2_get_error_message(error, text, sizeof(text));
  throw std::runtime_error(fmt::format("{}: {}", call, reinterpret_cast<const char*>(text)));
}

/// `pattern`: with SPACES in place of kSpaces.
Gpt2Splitter::Code compile(std::string pattern) {
  pattern = replaced(std::move(pattern), "SPACES", kSpaces);
  int error = 0;
  size_t place = 0;
  Gpt2Splitter::Code code(
      pcre2_compile(reinterpret_cast<const unsigned char*>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP, &error, &place, nullptr),
      pcre2_code_free);
  if (code == nullptr) fail("pcre2_compile", error);
  // Where the system allows no code made at run time, PCRE2 interprets the pattern.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

Gpt2Splitter::Match make_match(const pcre2_code* code) {
  Gpt2Splitter::Match match(pcre2_match_data_create_from_pattern(code, nullptr),
                            pcre2_match_data_free);
  if (match == nullptr) throw std::bad_alloc();
  return match;
}

/// The end of the first match from `at` on; 0 if there is none. `text` is well-formed.
size_t find_end(const pcre2_code* code, std::string_view text, size_t at, pcre2_match_data* match) {
  const int found = pcre2_match(code, reinterpret_cast<const unsigned char*>(text.data()),
                                text.size(), at, PCRE2_NO_UTF_CHECK, match, nullptr);
  if (found == PCRE2_ERROR_NOMATCH) return 0;
  if (found < 0) fail("pcre2_match", found);
  return pcre2_get_ovector_pointer(match)[1];
}

}  // namespace

std::string unicode_version() {
  const int size = pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, nullptr);
  if (size <= 0) fail("pcre2_config", size);
  std::string version(static_cast<size_t>(size), '\0');
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version.data());
  version.pop_back();  // the zero at the end
  return version;
}

Gpt2Splitter::Gpt2Splitter()
    : words_(compile(std::string(kWords))), cuts_(compile(std::string(kCuts))) {}

Gpt2Splitter::Words::Words(const Gpt2Splitter& splitter, std::string_view text)
    : code_(splitter.words_.get()), text_(text), match_(make_match(code_)) {}

bool Gpt2Splitter::Words::next(std::string_view& word) {
  if (at_ == text_.size()) return false;
  const size_t end = find_end(code_, text_, at_, match_.get());
  if (end <= at_) throw std::logic_error("GPT-2's pattern leaves text between words");
  word = text_.substr(at_, end - at_);
  at_ = end;
  return true;
}

size_t Gpt2Splitter::last_cut(std::string_view text) const {
  if (text.empty()) return 0;
  const Match match = make_match(cuts_.get());
  for (size_t window = 64;; window *= 4) {
    size_t begin = text.size() - std::min(window, text.size());
    for (int i = 0; begin > 0 && i < 3 && continues_character(text[begin]); ++i) ++begin;
    const std::string_view end_of_text = text.substr(begin);
    const Utf8Check check = check_utf8(end_of_text);
    if (check.valid < end_of_text.size() && !check.is_cut) return text.size();
    size_t last = 0;
    while (const size_t end =
               find_end(cuts_.get(), end_of_text.substr(0, check.valid), last, match.get())) {
      last = end;
    }
    if (last > 0) return begin + last;
    if (begin == 0) return 0;
  }
}

}  // namespace shoal
