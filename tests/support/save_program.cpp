// A small program whose only work is saving, for tests that kill it or let its system calls fail.
//   save_program save FOLDER STEP...   saves the steps one after the other into FOLDER/ckpt, two
//                                      shards each; a failing save is told and training goes on
//   save_program verify FOLDER         prints the step of the newest checkpoint; 20 unless every
//                                      committed one is valid
#include <unistd.h>

#include <iostream>
#include <string>

#include "parallel/checkpoint/checkpoint_folder.h"
#include "runtime/base/error.h"
#include "tests/support/sample_checkpoint.h"

namespace shoal {
namespace {

int save(const std::string& run, int argc, char** argv) {
  PosixFileSystem files;
  const std::string ckpt = run + "/ckpt";
  int failed = 0;
  // Seen by strace: the calls that belong to saving begin here.
  static_cast<void>(::access("saving-begins", F_OK));
  for (int i = 0; i < argc; ++i) {
    const int64_t step = std::stoll(argv[i]);
    try {
      remove_leftovers(files, ckpt);
      testing::save_sample(files, ckpt, {.step = step});
      remove_old_checkpoints(files, ckpt, {step, 2, 0, std::nullopt});
    } catch (const Error& error) {
      ++failed;
      std::cout << "E" << static_cast<int>(error.code()) << " step " << step << ": " << error.what()
                << std::endl;
    }
  }
  std::cout << "saved " << argc - failed << " failed " << failed << std::endl;
  return 0;
}

int verify(const std::string& run) {
  const std::vector<int64_t> steps = list_checkpoints(run + "/ckpt");
  for (const int64_t step : steps)
    CheckpointReader(run + "/ckpt/" + step_folder(step)).verify_data();
  std::cout << (steps.empty() ? -1 : steps.back()) << std::endl;
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  const std::string action = argc > 2 ? argv[1] : "";
  try {
    if (action == "save") return shoal::save(argv[2], argc - 3, argv + 3);
    if (action == "verify") return shoal::verify(argv[2]);
  } catch (const shoal::Error& error) {
    std::cout << error.what() << std::endl;
    return static_cast<int>(error.code());
  }
  return 2;
}
