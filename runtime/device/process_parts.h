#pragma once

#include <string>

namespace shoal {

/// What a program adds to its own process beside libshoal. Default: nothing. A program that links
/// the library shoal_process calls use_process_parts(), as `shoal` does, and gets what is faster.
struct ProcessParts {
  /// Sets up memory and floating-point mode for training; called before tensors are made.
  void (*set_up)() = [] {};
  /// Name of the library behind LibTorch's float32 `mm` here: "oneDNN 2.6.3" or "LibTorch".
  std::string (*sgemm_library)() = [] { return std::string("LibTorch"); };
  /// True if oneDNN would be used here but none with OpenMP threads is installed.
  bool (*misses_onednn)() = [] { return false; };
};

/// The parts that this process has registered.
const ProcessParts& process_parts();
/// Registers the parts of this process, before it makes tensors or threads.
void register_process_parts(const ProcessParts& parts);

/// Registers all parts: CPU tensors reuse memory and malloc keeps more (recycle_tensor_memory),
/// denormals are flushed to zero, and float32 matrix products of LibTorch come from oneDNN where
/// that is faster (runtime/products/sgemm.h). Call first in main(). Defined in shoal_process.
void use_process_parts();

}  // namespace shoal
