#include "launch/data/data.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "launch/job/launch_info.h"
#include "launch/job/print_result.h"
#include "runtime/base/text.h"
#include "runtime/files/data_file.h"
#include "runtime/files/file_system.h"
#include "runtime/options/config_reader.h"
#include "runtime/options/registry.h"
#include "runtime/text/tokenize.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

/// What the options say, read like a section of a recipe.
struct TokenizeOptions {
  Choice<Tokenizer> tokenizer;
  TextFormat format;

  static constexpr auto fields() {
    return std::tuple{inlined(&TokenizeOptions::tokenizer), inlined(&TokenizeOptions::format)};
  }
};

TokenizeOptions read_options(const TokenizeArguments& arguments) {
  const config::MemberSet& known = members_of<Tokenizer>();
  if (known.find(arguments.tokenizer) == nullptr) {
    refuse_unknown("--tokenizer: unknown tokenizer", arguments.tokenizer, known.names());
  }
  const config::Position place{std::make_shared<config::Source>(
      config::Source{.name = "command line", .is_command_line = true})};
  config::Node section, node;
  section.kind = config::Node::Kind::kMap;
  node.kind = config::Node::Kind::kScalar;
  section.position = node.position = place;
  const auto add = [&](const std::string& key, const std::string& value) {
    node.text = value;
    section.entries.push_back({key, place, node});
  };
  add(std::string(Tokenizer::kNameKey), arguments.tokenizer);
  for (const auto& [key, value] : arguments.options) add(key, value);
  config::Diagnostics diagnostics;
  TokenizeOptions options;
  config::read_into(config::type_of<TokenizeOptions>(), &options, section,
                    {config::UnsetVariable::kRefuse, environment_variable}, diagnostics);
  try {
    diagnostics.throw_if_any();
  } catch (const ConfigError& error) {
    throw Error(ExitCode::kUsage, error.what(), "see shoal data tokenize --help");
  }
  return options;
}

/// Throws if the output would replace an input, or a file that is not a cache, and if an input is a
/// token cache, which has no text to encode.
void check_paths(const std::string& out, const std::vector<std::string>& files) {
  if (!out.ends_with(kTokenFileEnding)) {
    throw Error(ExitCode::kUsage, "--out: '" + out + "' does not end in .bin",
                "recipes tell token caches from text by this ending");
  }
  const std::string side = token_info_path(out);
  for (const std::string& written : {out, side}) {
    for (const std::string& file : files) {
      std::error_code is_missing;
      if (!fs::equivalent(file, written, is_missing)) continue;
      throw Error(ExitCode::kUsage, "--out: '" + written + "' is one of the files to read",
                  "choose another name");
    }
  }
  const auto refuse_other = [](const std::string& written, bool is_ours, const char* what) {
    if (is_ours || !data_file_exists(written)) return;
    throw Error(ExitCode::kUsage, "--out: '" + written + "' exists and is not " + what,
                "choose another name, or remove it");
  };
  refuse_other(out, is_token_cache(out), "a token cache");
  refuse_other(side, is_token_info(side), "a token cache's side file");
  for (const std::string& file : files) {
    if (!is_token_cache(file)) continue;
    throw Error(ExitCode::kUsage, "'" + file + "' is a token cache, not text",
                "name it in data.train.files or data.valid.files as it is");
  }
}

}  // namespace

ExitCode tokenize(const TokenizeArguments& arguments, std::ostream& out) {
  check_paths(arguments.out, arguments.files);
  const TokenizeOptions options = read_options(arguments);
  const auto tokenizer = Registry<Tokenizer>::create(
      options.tokenizer, {.special_tokens = options.format.special_tokens});
  if (options.format.special_tokens == SpecialTokens::kEncode &&
      tokenizer->special_tokens().empty()) {
    throw Error(ExitCode::kUsage,
                "--special-tokens encode: tokenizer " + tokenizer->identity() + " has none",
                "leave it out; their texts are encoded like other text");
  }
  const auto start = std::chrono::steady_clock::now();
  PosixFileSystem files;
  const TokenFileInfo info =
      tokenize_files(arguments.files, *tokenizer, files, arguments.out, options.format.documents);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  print_result(
      out, arguments.json,
      {{"path", arguments.out},
       {"tokenizer", info.tokenizer},
       {"vocabulary", info.vocabulary},
       {"tokens", info.num_tokens},
       {"bytes", info.num_bytes},
       {"words", info.num_words},
       {"seconds", seconds}},
      fmt::format("{}: {} tokens of {} bytes and {} words from {}, by {}, in {:.1f} s\n",
                  arguments.out, info.num_tokens, info.num_bytes, info.num_words,
                  counted(std::ssize(info.sources), "file"), arguments.tokenizer, seconds));
  return ExitCode::kOk;
}

}  // namespace shoal
