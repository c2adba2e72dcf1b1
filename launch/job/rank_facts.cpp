#include "launch/job/rank_facts.h"

#include <ATen/Version.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <mpi.h>

#include <array>
#include <cstring>
#include <string_view>

#include "runtime/base/build_info.h"
#include "runtime/files/sha256.h"
#include "runtime/options/config_writer.h"

namespace shoal {
namespace {

/// What dl_iterate_phdr looks for, and what it has found.
struct WantedBuildId {
  std::string_view file;
  std::string hex;
};

constexpr size_t align_to_word(size_t size) { return (size + 3) / 4 * 4; }

/// The build id in a segment of notes; "" if none of them is one.
std::string build_id_in(const char* notes, size_t size) {
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes, sizeof(header));
    const char* name = notes + sizeof(header);
    const char* content = name + align_to_word(header.n_namesz);
    const size_t length =
        sizeof(header) + align_to_word(header.n_namesz) + align_to_word(header.n_descsz);
    if (length > size) break;
    if (header.n_type == NT_GNU_BUILD_ID &&
        std::string_view(name, header.n_namesz) == std::string_view("GNU\0", 4)) {
      const auto* id = reinterpret_cast<const unsigned char*>(content);
      return fmt::format("{:02x}", fmt::join(id, id + header.n_descsz, ""));
    }
    notes += length;
    size -= length;
  }
  return "";
}

int look_into(dl_phdr_info* loaded, size_t, void* wanted_pointer) {
  auto& wanted = *static_cast<WantedBuildId*>(wanted_pointer);
  const std::string_view path = loaded->dlpi_name;
  if (path.substr(path.rfind('/') + 1) != wanted.file) return 0;
  for (int i = 0; i < loaded->dlpi_phnum && wanted.hex.empty(); ++i) {
    const ElfW(Phdr)& segment = loaded->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    wanted.hex = build_id_in(reinterpret_cast<const char*>(loaded->dlpi_addr + segment.p_vaddr),
                             segment.p_memsz);
  }
  return 1;
}

/// Removes the paths below `data`, where each machine may keep its own copy.
void remove_data_paths(config::Node& node) {
  std::erase_if(node.entries, [](const config::Entry& entry) { return entry.key == "path"; });
  for (config::Entry& entry : node.entries) remove_data_paths(entry.value);
  for (config::Node& item : node.items) remove_data_paths(item);
}

}  // namespace

std::string loaded_torch_version() {
  static const std::string kKey = "TORCH_VERSION=";
  const std::string config = at::show_config();
  const size_t at = config.find(kKey);
  if (at == std::string::npos) return "unknown";
  return config.substr(at + kKey.size(), config.find(',', at) - at - kKey.size());
}

std::string loaded_mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string name = text.data();
  return name.substr(0, name.find_first_of(",\n"));
}

std::string build_id_of_loaded(const std::string& file) {
  WantedBuildId wanted{file, ""};
  dl_iterate_phdr(look_into, &wanted);
  if (!wanted.hex.empty()) return wanted.hex;
  throw Error(ExitCode::kVersionSkew,
              fmt::format("{} has no build id, so that ranks cannot tell whether they run the same",
                          file.empty() ? "the program" : file),
              "link it with -Wl,--build-id");
}

Facts installation_facts() {
  const BuildInfo& build = build_info();
  return {{"shoal", build.version + " " + build.git_revision},
          {"program", build_id_of_loaded("")},
          {"libshoal.so", build_id_of_loaded("libshoal.so")},
          {"LibTorch", loaded_torch_version()},
          {"MPI", loaded_mpi_version()}};
}

Facts recipe_facts(const Recipe& recipe) {
  config::Node node = config::to_node(recipe);
  if (config::Entry* data = node.find("data")) remove_data_paths(data->value);
  return {{"recipe", "sha256:" + sha256_hex(config::emit(node)).substr(0, 12)}};
}

void require_equal_ranks(Communicator& world, const Recipe& recipe) {
  if (world.size() == 1) return;
  Facts facts = installation_facts();
  for (const auto& fact : recipe_facts(recipe)) facts.push_back(fact);
  require_equal_on_ranks(world, facts);
}

}  // namespace shoal
