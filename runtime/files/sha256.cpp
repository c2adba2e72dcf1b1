#include "runtime/files/sha256.h"

#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <array>

#include "runtime/base/error.h"

namespace shoal {
namespace {

void check_digest(int result) {
  if (result != 1) throw Error(ExitCode::kInternal, "libcrypto refused to compute a SHA-256");
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  check_digest(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
}

void Sha256::update(std::string_view bytes) {
  check_digest(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int count = 0;
  check_digest(EVP_DigestFinal_ex(context_.get(), bytes.data(), &count));
  return fmt::format("{:02x}", fmt::join(bytes.data(), bytes.data() + count, ""));
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 sha;
  sha.update(bytes);
  return sha.hex();
}

}  // namespace shoal
