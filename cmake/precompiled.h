#pragma once

// The precompiled header: what most files include. Each unit instantiates again the templates that
// inline functions in it use, so it is narrow: not torch/torch.h, and without torch/library.h and
// torch/serialize/archive.h (operators' registration, TorchScript), which torch/types.h and
// torch/nn/module.h include and few of our files use; those include them.
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
