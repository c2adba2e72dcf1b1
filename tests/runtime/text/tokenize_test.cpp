#include "runtime/text/tokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/files/sha256.h"
#include "tests/support/failing_file_system.h"
#include "tests/support/line_tokenizer.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LineTokenizer;
using testing::ScratchFolder;
using testing::write_file;

/// Lines of different lengths, some of them longer than what is read at once.
std::string some_lines(size_t size) {
  std::string text;
  for (size_t line = 0; text.size() < size; ++line) {
    const size_t length = line % 1000 == 999 ? 1'500'000 : line % 77;
    text.append(length, static_cast<char>('a' + line % 26)).append(" \n");
  }
  return text;
}

std::vector<int64_t> read_tokens(const std::string& path) {
  const TokenFile file(path);
  return {file.tokens().begin(), file.tokens().end()};
}

class Tokenize : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    write_file(scratch_.file(name), text);
    return scratch_.file(name);
  }
  std::string problem_of(const std::vector<std::string>& paths) {
    try {
      tokenize_files(paths, tokenizer_, files_, out_);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }

  ScratchFolder scratch_;
  std::string out_ = scratch_.file("out.bin");
  LineTokenizer tokenizer_;
  PosixFileSystem files_;
};

TEST_F(Tokenize, EncodesPiecesAsTheWhole) {
  const std::string text = some_lines(4'000'000);
  std::vector<int64_t> expected;
  tokenizer_.encode(text, expected);
  const TokenFileInfo info = tokenize_files({write("a", text)}, tokenizer_, files_, out_);
  EXPECT_EQ(read_tokens(out_), expected);
  EXPECT_EQ(info.num_bytes, static_cast<int64_t>(text.size()));
  EXPECT_EQ(info.num_tokens, info.num_bytes);
  EXPECT_EQ(info.sources[0].sha256, sha256_hex(text));
}

TEST_F(Tokenize, PutsFilesOneAfterTheOther) {
  const TokenFileInfo info = tokenize_files(
      {write("b", "xy\nz"), write("empty", ""), write("a", "u v ")}, tokenizer_, files_, out_);
  EXPECT_THAT(read_tokens(out_),
              ElementsAre('x' + 256, 'y', '\n', 'z' + 256, 'u' + 256, ' ', 'v', ' '));
  EXPECT_EQ(info.num_words, 4);
  EXPECT_EQ(info.num_bytes, 8);
  ASSERT_EQ(info.sources.size(), 3u);
  EXPECT_EQ(info.sources[0].name, "b");
  EXPECT_EQ(info.sources[2].size, 4);
  EXPECT_EQ(TokenFile(out_).info()->tokenizer, "lines");
  EXPECT_EQ(TokenFile(out_).info()->vocabulary, 512);
}

TEST_F(Tokenize, NamesTheByteThatTheTokenizerRefuses) {
  std::string text = some_lines(3'000'000);
  text[2'500'000] = '\xff';
  EXPECT_THAT(problem_of({write("good", "a"), write("bad", text)}),
              AllOf(HasSubstr("/bad: byte 2500000: 0xff")));
  for (const char* source : {"good", "bad"}) fs::remove(scratch_.file(source));
  EXPECT_TRUE(fs::is_empty(scratch_.path()));
}

TEST_F(Tokenize, BoundsWhatItReadsWithoutAPlaceToCut) {
  const std::string text = "a line\n" + std::string(kLongestUncutText + (2u << 20), 'x');
  EXPECT_THAT(problem_of({write("a", text)}),
              AllOf(HasSubstr("no place to cut"), HasSubstr("from byte 7 on")));
}

TEST_F(Tokenize, NamesAMissingFile) {
  EXPECT_THAT(problem_of({scratch_.file("none")}), HasSubstr("no 'none' in"));
}

TEST_F(Tokenize, LeavesNothingOnAFullDisk) {
  testing::FailingFileSystem files;
  files.fail_at = 1;
  files.error = ENOSPC;
  const std::string path = write("a", "text");
  try {
    tokenize_files({path}, tokenizer_, files, out_);
    FAIL() << "written";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("No space left"), HasSubstr("bytes needed")));
  }
  fs::remove(path);
  EXPECT_TRUE(fs::is_empty(scratch_.path()));
}

TEST_F(Tokenize, EndsEachFileThatIsADocument) {
  tokenizer_.end = 511;
  const TokenFileInfo info =
      tokenize_files({write("b", "xy\nz"), write("empty", ""), write("a", "u")}, tokenizer_, files_,
                     out_, Documents::kFiles);
  EXPECT_THAT(read_tokens(out_),
              ElementsAre('x' + 256, 'y', '\n', 'z' + 256, 511, 511, 'u' + 256, 511));
  EXPECT_EQ(info.num_bytes, 5);
  EXPECT_EQ(info.documents, "files");
  EXPECT_EQ(TokenFile(out_).info()->documents, "files");
}

TEST_F(Tokenize, EndsEachLineThatIsADocument) {
  tokenizer_.end = 511;
  const std::string lines =
      "{\"text\": \"xy\\nz\", \"id\": 3}\n{\"text\": \"\"}\n{\"id\": 1, \"text\": \"u v\"}";
  const TokenFileInfo info =
      tokenize_files({write("a", lines)}, tokenizer_, files_, out_, Documents::kLines);
  EXPECT_THAT(read_tokens(out_),
              ElementsAre('x' + 256, 'y', '\n', 'z' + 256, 511, 511, 'u' + 256, ' ', 'v', 511));
  EXPECT_EQ(info.num_bytes, 7);
  EXPECT_EQ(info.num_words, 4);
  EXPECT_EQ(info.sources[0].size, static_cast<int64_t>(lines.size()));
  EXPECT_EQ(info.sources[0].sha256, sha256_hex(lines));
}

TEST_F(Tokenize, ReadsLinesLongerThanWhatIsReadAtOnce) {
  tokenizer_.end = 511;
  std::string lines;
  size_t letters = 0;
  for (const size_t size : {5u, 3'000'000u, 7'000'000u, 0u, 1'048'576u}) {
    lines += "{\"text\": \"" + std::string(size, 'x') + "\"}\n";
    letters += size;
  }
  tokenize_files({write("a", lines)}, tokenizer_, files_, out_, Documents::kLines);
  const std::vector<int64_t> tokens = read_tokens(out_);
  EXPECT_EQ(tokens.size(), letters + 5);
  EXPECT_EQ(std::ranges::count(tokens, 511), 5);
}

TEST_F(Tokenize, NamesTheLineThatIsNoDocument) {
  tokenizer_.end = 511;
  const auto problem = [&](const std::string& line) {
    write("a", "{\"text\": \"one\"}\n" + line + "\n{\"text\": \"three\"}\n");
    try {
      tokenize_files({scratch_.file("a")}, tokenizer_, files_, out_, Documents::kLines);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  for (const char* line : {"", "text", "[\"text\"]", "3", "{\"text\": 3}", "{\"texts\": \"a\"}"}) {
    EXPECT_THAT(problem(line), HasSubstr("/a:2: not a JSON object with a string \"text\"")) << line;
  }
  EXPECT_EQ(problem("{\"text\": \"two\"}"), "no error");
}

TEST_F(Tokenize, RefusesDocumentsWithoutAnEndOfTextToken) {
  for (const Documents documents : {Documents::kFiles, Documents::kLines}) {
    try {
      tokenize_files({write("a", "{\"text\": \"\"}")}, tokenizer_, files_, out_, documents);
      FAIL() << "written";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("<|endoftext|>"), HasSubstr("tokenizer lines")));
    }
  }
}

TEST(WordCounter, CountsRunsBetweenWhiteSpace) {
  const auto words = [](const std::vector<std::string>& parts) {
    WordCounter counter;
    for (const std::string& part : parts) counter.add(part);
    return counter.words();
  };
  EXPECT_EQ(words({""}), 0);
  EXPECT_EQ(words({" \t\n\r\v\f"}), 0);
  EXPECT_EQ(words({"a"}), 1);
  EXPECT_EQ(words({" a b\tc\nd\re\vf\fg "}), 7);
  EXPECT_EQ(words({"a", "b", "", "c d", " ", "e"}), 3);
  EXPECT_EQ(words({"caf\xc3\xa9 \x01"}), 2);
}

class CachedTokensTest : public Tokenize {
 protected:
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      found.push_back(entry.path().filename().string());
    }
    return found;
  }
  static constexpr int kFound = 41, kMade = 42, kThrew = 99;
  int exit_code_of_making(const std::string& path) {
    try {
      return cached_tokens(path, tokenizer_, files_, folder_).seconds > 0.0 ? kMade : kFound;
    } catch (const std::exception&) {
      return kThrew;
    }
  }

  std::string folder_ = scratch_.file("cache/tokens");
};

TEST_F(CachedTokensTest, AreMadeOnceForEachTextAndTokenizer) {
  const std::string path = write("a", "one two\n");
  const CachedTokens made = cached_tokens(path, tokenizer_, files_, folder_);
  EXPECT_GT(made.seconds, 0.0);
  EXPECT_EQ(made.file.tokens().size(), 8u);
  EXPECT_EQ(cached_tokens(path, tokenizer_, files_, folder_).seconds, 0.0);
  EXPECT_EQ(cached_tokens(write("copy", "one two\n"), tokenizer_, files_, folder_).seconds, 0.0);
  EXPECT_EQ(names().size(), 2u);
  EXPECT_GT(cached_tokens(write("a", "one twO\n"), tokenizer_, files_, folder_).seconds, 0.0);
  const LineTokenizer other("other lines");
  EXPECT_GT(cached_tokens(path, other, files_, folder_).seconds, 0.0);
  EXPECT_EQ(names().size(), 6u);
  tokenizer_.end = 511;
  for (int i = 0; i < 2; ++i) {
    const CachedTokens ended = cached_tokens(path, tokenizer_, files_, folder_, Documents::kFiles);
    EXPECT_EQ(ended.file.tokens().size(), 9u);
    EXPECT_EQ(ended.seconds == 0.0, i == 1);
  }
}

TEST_F(CachedTokensTest, AreMadeByOneOfSeveralThreads) {
  const std::string path = write("a", std::string(100, '\n'));
  tokenizer_.on_encode = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  std::vector<std::thread> threads;
  std::atomic<int> num_made = 0;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      const CachedTokens tokens = cached_tokens(path, tokenizer_, files_, folder_);
      EXPECT_EQ(tokens.file.tokens().size(), 100u);
      num_made += tokens.seconds > 0.0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_made, 1);
  EXPECT_EQ(tokenizer_.num_encoded, 100);
  EXPECT_EQ(names().size(), 2u);  // no lock is left
}

TEST_F(CachedTokensTest, AreMadeByOneOfSeveralProcesses) {
  const std::string path = write("a", "text");
  tokenizer_.on_encode = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  for (int i = 0; i < 3; ++i) {
    if (::fork() == 0) ::_exit(exit_code_of_making(path));
  }
  int num_made = 0;
  for (int i = 0, status = 0; i < 3; ++i) {
    ::wait(&status);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_THAT(WEXITSTATUS(status), AnyOf(kMade, kFound));
    num_made += WEXITSTATUS(status) == kMade;
  }
  EXPECT_EQ(num_made, 1);
}

TEST_F(CachedTokensTest, AreMadeAnewAfterTheirMakerWasKilled) {
  const std::string path = write("a", "text");
  if (::fork() == 0) {
    tokenizer_.on_encode = [] { ::raise(SIGKILL); };
    ::_exit(exit_code_of_making(path));
  }
  int status = 0;
  ::wait(&status);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(names().size(), 2u);  // a lock and a temporary file
  EXPECT_GT(cached_tokens(path, tokenizer_, files_, folder_).seconds, 0.0);
  EXPECT_EQ(names().size(), 2u);
}

TEST_F(CachedTokensTest, AreNotMadeOfATextThatChangesWhileItIsRead) {
  const std::string path = write("a", "one\n");
  bool is_changed = false;
  tokenizer_.on_encode = [&] {
    if (!std::exchange(is_changed, true)) write("a", "one\ntwo\n");
  };
  try {
    cached_tokens(path, tokenizer_, files_, folder_);
    FAIL() << "made";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/a: changed while it was read"));
  }
  EXPECT_EQ(cached_tokens(path, tokenizer_, files_, folder_).file.tokens().size(), 8u);
}

TEST_F(CachedTokensTest, AreMadeAnewWithoutASideFileAndNamedWhereTheyAreDamaged) {
  const std::string path = write("a", "one\n");
  const std::string cache = cached_tokens(path, tokenizer_, files_, folder_).file.path();
  fs::remove(token_info_path(cache));
  EXPECT_GT(cached_tokens(path, tokenizer_, files_, folder_).seconds, 0.0);
  EXPECT_EQ(names().size(), 2u);
  fs::resize_file(cache, 1026);
  try {
    cached_tokens(path, tokenizer_, files_, folder_);
    FAIL() << "read";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cut short"));
    EXPECT_EQ(error.hint(), "remove " + cache + " and " + cache + ".json; it is made again");
  }
}

TEST_F(CachedTokensTest, NeedAFolderThatCanBeWritten) {
  write("cache", "a file");
  try {
    cached_tokens(write("a", "text"), tokenizer_, files_, folder_);
    FAIL() << "made";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr(folder_));
    EXPECT_THAT(error.hint(), HasSubstr("XDG_CACHE_HOME"));
  }
}

}  // namespace
}  // namespace shoal
