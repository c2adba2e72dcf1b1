#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <zlib.h>

#include <array>
#include <filesystem>
#include <memory>

#include "launch/data/data.h"
#include "runtime/data/shards/tar.h"
#include "runtime/files/data_file.h"
#include "runtime/files/new_folder.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMd5 = "c32a1d4ab5d03f1284b67883e8d87530";
constexpr const char* kHint =
    "CIFAR-10 binary version: cifar-10-binary.tar.gz, 170,052,171 bytes, from its authors' page "
    "https://www.cs.toronto.edu/~kriz/cifar.html";

/// Throws DataError unless the six files are there, each of 10,000 records with labels below 10.
void check_layout(const std::string& folder) {
  constexpr size_t kFileBytes = 30'730'000, kRecordBytes = 3073;
  for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                           "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
    const MappedFile file(folder + "/" + name, kHint);
    bool is_good = file.bytes().size() == kFileBytes;
    for (size_t at = 0; is_good && at < kFileBytes; at += kRecordBytes) {
      is_good = file.bytes()[at] < std::byte{10};
    }
    if (!is_good) throw DataError(file.path() + ": is not 10,000 images of 10 classes", kHint);
  }
}

}  // namespace

void unpack_archive(const std::string& archive, const std::string& md5, const std::string& out) {
  const auto packed = MappedFile(archive, kHint);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  size_t length = 0;
  EVP_Q_digest(nullptr, "MD5", nullptr, packed.bytes().data(), packed.bytes().size(), digest.data(),
               &length);
  const std::string found =
      fmt::format("{:02x}", fmt::join(digest.data(), digest.data() + length, ""));
  if (found != md5) {
    throw DataError(fmt::format("{}: its MD5 is {}, expected {}", archive, found, md5), kHint);
  }
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(archive.c_str(), "rb"), gzclose);
  std::vector<std::byte> tar(size_t{200} << 20);  // more than it holds
  tar.resize(static_cast<size_t>(
      std::max(0, gzread(file.get(), tar.data(), static_cast<unsigned>(tar.size())))));
  PosixFileSystem files;
  for (const TarMember& member : list_tar(tar, archive)) {
    replace_file(files, out + "/" + fs::path(member.name).filename().string(),
                 {reinterpret_cast<const char*>(tar.data()) + member.offset,
                  static_cast<size_t>(member.size)});
  }
}

ExitCode prepare(const PrepareArguments& arguments, std::ostream& out) {
  if (arguments.name != "cifar10") refuse_unknown("unknown data set", arguments.name, {"cifar10"});
  if (arguments.given.empty()) {
    out << fmt::format("{}\nMD5 {}\nthen: shoal data prepare cifar10 cifar-10-binary.tar.gz\n",
                       kHint, kMd5);
    return ExitCode::kOk;
  }
  std::string folder = arguments.given;
  if (fs::is_directory(folder)) {
    check_layout(folder);
  } else {
    folder = arguments.out;
    NewFolder made(folder);
    unpack_archive(arguments.given, kMd5, made.working_path());
    check_layout(made.working_path());
    made.commit();
  }
  const std::string path = fs::canonical(folder).string();
  out << fmt::format("50,000 images to train on and 10,000 to test on: data.path={}\n", path);
  return ExitCode::kOk;
}

}  // namespace shoal
