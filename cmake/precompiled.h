#pragma once

// The precompiled header: what most files include. Each unit instantiates again the templates that
// inline functions in it use, so it is narrow: not torch/torch.h, and of LibTorch's headers here not
// what they include of the dispatcher and of TorchScript, which few files use.
#define SHOAL_LEAVES_HEADERS_OUT
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>
#undef SHOAL_LEAVES_HEADERS_OUT

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
