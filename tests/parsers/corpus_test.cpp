#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/support/draws.h"
#include "tests/support/scratch_folder.h"

// The fuzzers' entry points, compiled under these names; each aborts where its promise is broken.
extern "C" {
int fuzz_bpe_merges(const uint8_t* data, size_t size);
int fuzz_foreign_config(const uint8_t* data, size_t size);
int fuzz_image(const uint8_t* data, size_t size);
int fuzz_manifest(const uint8_t* data, size_t size);
int fuzz_recipe(const uint8_t* data, size_t size);
int fuzz_safetensors(const uint8_t* data, size_t size);
int fuzz_tar(const uint8_t* data, size_t size);
int fuzz_token_file(const uint8_t* data, size_t size);
}

namespace shoal {
namespace {

using testing::Draws;

struct Fuzzer {
  const char* name;
  int (*run)(const uint8_t* data, size_t size);

  void operator()(const std::string& input) const {
    run(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
};

/// The files of the corpus in the order of their names.
std::vector<std::string> corpus_of(const Fuzzer& fuzzer) {
  std::vector<std::string> paths, inputs;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(SHOAL_CORPORA "/") +
                                                               fuzzer.name + ".corpus")) {
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) inputs.push_back(testing::read_file(path));
  return inputs;
}

/// One to four changes: a byte replaced, a piece cut out, or a piece of `other` put in.
std::string mutated(std::string text, const std::string& other, Draws& draws) {
  constexpr size_t kLongestPiece = 40;
  for (size_t change = 1 + draws.below(4); change > 0 && !text.empty(); --change) {
    const size_t place = draws.below(text.size());
    const size_t length = 1 + draws.below(kLongestPiece);
    switch (draws.below(3)) {
      case 0:
        text[place] = static_cast<char>(draws.below(256));
        break;
      case 1:
        text.erase(place, length);
        break;
      default:
        text.insert(place, other, other.empty() ? 0 : draws.below(other.size()), length);
    }
  }
  return text;
}

class Corpus : public ::testing::TestWithParam<Fuzzer> {};

TEST_P(Corpus, KeepsThePromisesOfItsFuzzer) {
  const std::vector<std::string> inputs = corpus_of(GetParam());
  EXPECT_GE(inputs.size(), 2u);
  for (const std::string& input : inputs) {
    GetParam()(input);
    for (size_t length = 0; length < input.size(); ++length) GetParam()(input.substr(0, length));
  }
}

TEST_P(Corpus, KeepsThemUnderMutations) {
  constexpr uint64_t kMutations = 5'000;
  const std::vector<std::string> inputs = corpus_of(GetParam());
  std::set<std::string> tried;
  for (uint64_t mutation = 0; mutation < kMutations; ++mutation) {
    Draws draws(mutation);
    const std::string& text = inputs[draws.below(inputs.size())];
    const std::string input = mutated(text, inputs[draws.below(inputs.size())], draws);
    GetParam()(input);
    tried.insert(input);
  }
  EXPECT_GT(tried.size(), kMutations / 2);
}

INSTANTIATE_TEST_SUITE_P(All, Corpus,
                         ::testing::Values(Fuzzer{"fuzz_bpe_merges", fuzz_bpe_merges},
                                           Fuzzer{"fuzz_foreign_config", fuzz_foreign_config},
                                           Fuzzer{"fuzz_image", fuzz_image},
                                           Fuzzer{"fuzz_manifest", fuzz_manifest},
                                           Fuzzer{"fuzz_recipe", fuzz_recipe},
                                           Fuzzer{"fuzz_safetensors", fuzz_safetensors},
                                           Fuzzer{"fuzz_tar", fuzz_tar},
                                           Fuzzer{"fuzz_token_file", fuzz_token_file}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace shoal
