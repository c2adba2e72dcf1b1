#include "runtime/text/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/failing_file_system.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FailingFileSystem;
using ::testing::HasSubstr;
using testing::read_file;
using testing::ScratchFolder;
using testing::write_file;

/// The file's bytes as llm.c's scripts write them.
std::string cache_bytes(const std::vector<uint16_t>& tokens, int32_t magic = 20240520,
                        int32_t version = 1) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<int32_t>(tokens.size());
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  return bytes.append(reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size());
}

TokenFileInfo write_cache(FileSystem& files, const std::string& path,
                          const std::vector<int64_t>& ids, const std::string& tokenizer = "bytes") {
  TokenFileWriter writer(files, path);
  writer.append(ids);
  return writer.finish({.tokenizer = tokenizer,
                        .vocabulary = 256,
                        .num_bytes = 7,
                        .num_words = 2,
                        .sources = {{"a.txt", 7, "00ff"}}});
}

std::string data_error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const DataError& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    return error.what();
  }
  return "no error";
}

class TokenCache : public ::testing::Test {
 protected:
  std::string problem_of(const std::string& bytes) const {
    write_file(path_, bytes);
    return data_error_of([&] { TokenFile file(path_); });
  }

  int64_t num_files() const {
    return std::distance(fs::directory_iterator(scratch_.path()), fs::directory_iterator());
  }

  ScratchFolder scratch_;
  std::string path_ = scratch_.file("x.bin");
  PosixFileSystem files_;
};

TEST_F(TokenCache, IsWrittenAsLlmCWritesIt) {
  write_cache(files_, path_, {1, 65535, 300});
  EXPECT_EQ(read_file(path_), cache_bytes({1, 65535, 300}));
  EXPECT_THAT(read_file(path_ + ".json"), HasSubstr("\"tokens\": 3"));
  EXPECT_EQ(num_files(), 2);
}

TEST_F(TokenCache, IsReadBackWithItsSideFile) {
  const TokenFileInfo written = write_cache(files_, path_, {3, 1, 2});
  EXPECT_EQ(written.num_tokens, 3);
  const TokenFile file(path_);
  EXPECT_THAT(file.tokens(), ElementsAre(3, 1, 2));
  EXPECT_EQ(file.info(), written);
}

TEST_F(TokenCache, NeedsNoSideFileAndMayBeEmptyOrALink) {
  write_file(path_, cache_bytes({}));
  EXPECT_TRUE(TokenFile(path_).tokens().empty());
  write_file(path_, cache_bytes({5, 6}));
  fs::create_symlink("x.bin", scratch_.file("link.bin"));
  const TokenFile file(scratch_.file("link.bin"));
  EXPECT_THAT(file.tokens(), ElementsAre(5, 6));
  EXPECT_FALSE(file.info().has_value());
}

TEST_F(TokenCache, NamesFileAndOffsetOfWhatIsWrong) {
  const std::string good = cache_bytes({1, 2, 3});
  EXPECT_THAT(problem_of(""), AllOf(HasSubstr("x.bin"), HasSubstr("ends at byte 0")));
  EXPECT_THAT(problem_of(good.substr(0, 1023)), HasSubstr("ends at byte 1023"));
  EXPECT_THAT(problem_of(cache_bytes({1}, 20240521)), HasSubstr("byte 0 is 20240521"));
  EXPECT_THAT(problem_of(cache_bytes({1}, 20240520, 7)), HasSubstr("version 7 at byte 4"));
  EXPECT_THAT(problem_of(good.substr(0, good.size() - 1)),
              HasSubstr("cut short: it ends at byte 1029, its 3 tokens at byte 1030"));
  EXPECT_THAT(problem_of(good + "ab"), HasSubstr("2 bytes too many, from byte 1030 on"));
  std::string wrong = good;
  wrong[11] = static_cast<char>(0x80);
  EXPECT_THAT(problem_of(wrong), HasSubstr("tokens by the header, byte 8"));
  wrong = good;
  wrong[1020] = 1;
  EXPECT_THAT(problem_of(wrong), HasSubstr("byte 1020 of the header is 1"));
  EXPECT_THAT(data_error_of([&] { TokenFile file(scratch_.file("y.bin")); }),
              AllOf(HasSubstr("no 'y.bin' in"), HasSubstr("which holds x.bin")));
  EXPECT_THAT(data_error_of([&] { TokenFile file(scratch_.path()); }),
              HasSubstr("not a regular file"));
}

TEST_F(TokenCache, NamesTheFirstTokenThatIsNotBelowTheVocabulary) {
  std::vector<uint16_t> tokens(10'000, 255);
  tokens[5000] = 256;
  write_file(path_, cache_bytes(tokens));
  const TokenFile file(path_);
  file.require_below(257);
  file.require_below(65536);
  EXPECT_THAT(data_error_of([&] { file.require_below(256); }),
              AllOf(HasSubstr("x.bin: token 5000 (byte 11024) has id 256"),
                    HasSubstr("below the vocabulary of 256")));
  EXPECT_THAT(data_error_of([&] { file.require_below(255); }), HasSubstr("token 0 (byte 1024)"));
}

TEST_F(TokenCache, RefusesASideFileThatIsNotItsOwn) {
  write_cache(files_, path_, {1, 2, 3});
  const std::string info = read_file(path_ + ".json");
  EXPECT_THAT(problem_of(cache_bytes({1, 2})),
              AllOf(HasSubstr("x.bin.json: counts 3 tokens"), HasSubstr("x.bin holds 2")));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = info;
    changed.replace(changed.find(from), from.size(), to);
    write_file(path_ + ".json", changed);
    return problem_of(cache_bytes({1, 2, 3}));
  };
  EXPECT_THAT(with("{", "["), HasSubstr("x.bin.json: not a JSON object"));
  EXPECT_THAT(with("\"format\": 1", "\"format\": 2"), HasSubstr("format 2"));
  EXPECT_THAT(with("\"tokens\": 3", "\"tokens\": -3"),
              HasSubstr("'tokens' must be an integer >= 0"));
  EXPECT_THAT(with("\"words\": 2", "\"words\": 18446744073709551615"), HasSubstr("'words'"));
  EXPECT_THAT(with("\"bytes\":", "\"octets\":"), HasSubstr("'bytes' must be an integer >= 0"));
  EXPECT_THAT(with("\"bytes\",", "5,"), HasSubstr("'tokenizer' must be a string"));
  EXPECT_THAT(with("\"sources\"", "\"source\""), HasSubstr("'sources' must be a list"));
  EXPECT_THAT(with("\"00ff\"", "null"), HasSubstr("'sha256' must be a string"));
}

TEST_F(TokenCache, HoldsTheNamesOfSourcesThatAreNotUtf8) {
  const TokenFileInfo read = parse_token_info(
      emit_token_info({.tokenizer = "t", .sources = {{"a\xff", 1, ""}}}), "x.bin.json");
  EXPECT_EQ(read.sources[0].name, "a\xef\xbf\xbd");
}

TEST_F(TokenCache, LeavesNothingBehindWhenTheDiskFails) {
  FailingFileSystem counting;
  write_cache(counting, path_, {1, 2, 3});
  for (int64_t call = 0; call < counting.calls(); ++call) {
    const ScratchFolder scratch;
    const std::string path = scratch.file("x.bin");
    FailingFileSystem files;
    files.fail_at = call;
    files.error = ENOSPC;
    try {
      write_cache(files, path, {1, 2, 3});
      EXPECT_EQ(counting.log()[static_cast<size_t>(call)], "close") << call;  // of the folder
    } catch (const StorageError& error) {
      EXPECT_EQ(error.code(), ExitCode::kStorage);
    }
    if (fs::exists(path)) {  // what failed came after its name: it is complete
      EXPECT_EQ(TokenFile(path).info()->num_tokens, 3);
    } else {
      EXPECT_TRUE(fs::is_empty(scratch.path())) << "after call " << call;
    }
  }
}

TEST_F(TokenCache, ReplacesAnOlderOneOnlyIfItCanBeRemoved) {
  write_cache(files_, path_, {1, 2, 3}, "old");
  FailingFileSystem counting;
  const std::string other = scratch_.file("y.bin");
  write_cache(counting, other, {4}, "old");
  FailingFileSystem files;
  const auto& log = counting.log();
  files.fail_at = std::find(log.begin(), log.end(), "remove_file " + other) - log.begin();
  ASSERT_LT(files.fail_at, counting.calls());
  try {
    write_cache(files, path_, {4, 5}, "new");
    FAIL() << "written";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("remove"), HasSubstr("x.bin")));
  }
  EXPECT_EQ(TokenFile(path_).info()->tokenizer, "old");
  EXPECT_EQ(num_files(), 4);
}

TEST_F(TokenCache, IsLeftInPlaceByAnotherWriterOfTheSame) {
  write_cache(files_, path_, {1, 2, 3});
  FailingFileSystem counting;
  write_cache(counting, path_, {1, 2, 3});
  for (const std::string& call : counting.log()) EXPECT_FALSE(call.starts_with("remove")) << call;
  EXPECT_EQ(TokenFile(path_).tokens().size(), 3u);
}

TEST_F(TokenCache, IsWrittenByTwoAtOnce) {
  TokenFileWriter first(files_, path_), second(files_, path_);
  first.append({1, 2});
  second.append({3});
  first.finish({.tokenizer = "first", .sources = {}});
  second.finish({.tokenizer = "second", .sources = {}});
  EXPECT_THAT(TokenFile(path_).tokens(), ElementsAre(3));
  EXPECT_EQ(num_files(), 2);
}

TEST_F(TokenCache, IsRemovedUnlessItIsFinished) {
  {
    TokenFileWriter writer(files_, path_);
    writer.append({1, 2, 3});
  }
  EXPECT_TRUE(fs::is_empty(scratch_.path()));
}

TEST_F(TokenCache, NeverLiesBesideAnothersSideFileWhenTheWriterIsKilled) {
  FailingFileSystem counting;
  write_cache(counting, path_, {1, 2, 3});
  write_cache(counting, path_, {4, 5, 6});
  for (int64_t call = 0; call < counting.calls(); ++call) {
    write_cache(files_, path_, {1, 2, 3}, "old");
    const pid_t child = ::fork();
    if (child == 0) {
      FailingFileSystem dying;
      dying.fail_at = call;
      dying.kill = true;
      try {
        write_cache(dying, path_, {4, 5, 6}, "new");
      } catch (const std::exception&) {
        ::_exit(99);
      }
      ::_exit(42);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 42) << call;
    if (!fs::exists(path_)) continue;
    const TokenFile file(path_);
    EXPECT_EQ(file.info()->tokenizer, file.tokens()[0] == 1 ? "old" : "new") << call;
  }
}

TEST_F(TokenCache, TakesShortWrites) {
  FailingFileSystem files;
  files.longest_write = 100;
  write_cache(files, path_, {1, 2, 3});
  EXPECT_EQ(read_file(path_), cache_bytes({1, 2, 3}));
}

TEST_F(TokenCache, IsKnownByItsFirstBytes) {
  write_file(path_, cache_bytes({}));
  EXPECT_TRUE(is_token_cache(path_));
  write_file(path_, "text");
  EXPECT_FALSE(is_token_cache(path_));
  EXPECT_FALSE(is_token_cache(scratch_.file("none")));
}

}  // namespace
}  // namespace shoal
