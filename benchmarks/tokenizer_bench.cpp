#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/support/program.h"
#include "runtime/text/gpt2_tokenizer.h"

/// Our side of peers/tokenizer_peer.py, which starts this program with the two files of a BPE:
/// writes `ready`, then answers each line {"text": FILE, "ids": FILE} with {"seconds", "tokens"}
/// and writes the token ids as 32-bit integers. One thread; reading and writing files is not timed.
namespace shoal::bench::tokenizer_bench {
namespace {

nlohmann::json answer(const Tokenizer& tokenizer, const nlohmann::json& question) {
  std::ifstream file(question.at("text").get<std::string>(), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw std::runtime_error("cannot read " + question.dump());
  std::vector<int64_t> ids;
  const double seconds = seconds_of([&] { tokenizer.encode(text, ids); }, 1);
  if (tokenizer.decode(ids) != text) throw std::runtime_error("the ids are not those of the text");
  const std::vector<int32_t> narrow(ids.begin(), ids.end());
  std::ofstream out(question.at("ids").get<std::string>(), std::ios::binary);
  out.write(reinterpret_cast<const char*>(narrow.data()),
            static_cast<std::streamsize>(narrow.size() * sizeof(int32_t)));
  if (!out.flush()) throw std::runtime_error("cannot write " + question.dump());
  return {{"seconds", seconds}, {"tokens", ids.size()}};
}

int run(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: tokenizer_bench VOCAB MERGES; see peers/tokenizer_peer.py\n");
    return 2;
  }
  const Gpt2Tokenizer tokenizer({argv[1], argv[2]});
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer(tokenizer, nlohmann::json::parse(line)) << std::endl;
  }
  return 0;
}

int start(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tokenizer_bench: %s\n", error.what());
    return 1;
  }
}

const Benchmark kBenchmark("tokenizer", start);

}  // namespace
}  // namespace shoal::bench::tokenizer_bench
