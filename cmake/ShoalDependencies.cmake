# Everything Shoal links. Each missing thing is an error that names its fix.
function(shoal_require name found fix)
  if(NOT ${found})
    message(FATAL_ERROR "${name}: not found. ${fix}")
  endif()
endfunction()
set(setup_fix "Run launch/setup, or apt-get install")

find_package(LibTorch 2.11 MODULE REQUIRED)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# The C API only: the C++ bindings are gone from MPI 3.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS C)
shoal_require(MPI MPI_C_FOUND "${setup_fix} libopenmpi-dev openmpi-bin.")
find_package(yaml-cpp QUIET)
shoal_require(yaml-cpp yaml-cpp_FOUND "${setup_fix} libyaml-cpp-dev.")
find_package(fmt QUIET)
shoal_require(fmt fmt_FOUND "${setup_fix} libfmt-dev.")
find_package(spdlog QUIET)
shoal_require(spdlog spdlog_FOUND "${setup_fix} libspdlog-dev.")
find_package(OpenSSL QUIET COMPONENTS Crypto)
shoal_require("OpenSSL's libcrypto" OPENSSL_FOUND "${setup_fix} libssl-dev.")
find_package(PNG QUIET)
shoal_require(libpng PNG_FOUND "${setup_fix} libpng-dev.")
find_package(JPEG QUIET)
shoal_require(libjpeg JPEG_FOUND "${setup_fix} libjpeg-dev.")
find_path(SHOAL_PCRE2_INCLUDE pcre2.h)
find_library(SHOAL_PCRE2_LIBRARY pcre2-8)
if(SHOAL_PCRE2_INCLUDE AND SHOAL_PCRE2_LIBRARY)
  set(SHOAL_PCRE2_FOUND TRUE)
endif()
shoal_require("PCRE2 for 8-bit characters" SHOAL_PCRE2_FOUND "${setup_fix} libpcre2-dev.")
find_path(SHOAL_NLOHMANN_INCLUDE nlohmann/json.hpp)
shoal_require(nlohmann-json SHOAL_NLOHMANN_INCLUDE "${setup_fix} nlohmann-json3-dev.")
find_path(SHOAL_CLI11_INCLUDE CLI/CLI.hpp)
shoal_require(CLI11 SHOAL_CLI11_INCLUDE "${setup_fix} libcli11-dev.")
find_path(SHOAL_DYGRAPHS dygraph.min.js PATHS /usr/share/javascript/dygraphs)
shoal_require("dygraphs, which draws the curves of pages," SHOAL_DYGRAPHS
              "${setup_fix} libjs-dygraphs.")
mark_as_advanced(SHOAL_DYGRAPHS SHOAL_PCRE2_INCLUDE SHOAL_PCRE2_LIBRARY SHOAL_NLOHMANN_INCLUDE
                 SHOAL_CLI11_INCLUDE)
if(SHOAL_TESTS)
  find_package(GTest QUIET)
  shoal_require(GoogleTest GTest_FOUND "${setup_fix} libgtest-dev libgmock-dev.")
endif()

# LibTorch and Debian's libraries must agree on std::string, or everything links but nothing runs.
if(NOT DEFINED SHOAL_ABI_AGREES)
  file(WRITE "${CMAKE_BINARY_DIR}/abi_check.cpp" [[
#include <c10/util/Exception.h>
#include <yaml-cpp/yaml.h>
int main() {
  c10::Error error({__func__, __FILE__, 0}, YAML::Dump(YAML::Load("1")));
  return error.msg() == "1" ? 0 : 1;
}
]])
  try_compile(SHOAL_ABI_AGREES "${CMAKE_BINARY_DIR}/abi_check" "${CMAKE_BINARY_DIR}/abi_check.cpp"
              LINK_LIBRARIES LibTorch::c10 yaml-cpp CXX_STANDARD 20
              OUTPUT_VARIABLE abi_output)
  if(NOT SHOAL_ABI_AGREES)
    unset(SHOAL_ABI_AGREES CACHE)
    message(FATAL_ERROR "LibTorch in ${LibTorch_ROOT} does not link with this compiler and "
            "yaml-cpp; it may use another C++ ABI. Use the wheel that launch/setup installs.\n"
            "${abi_output}")
  endif()
endif()
