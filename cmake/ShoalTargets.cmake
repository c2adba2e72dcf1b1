# Flags, the precompiled header and the functions that make one target per folder.
include(GNUInstallDirs)  # the folders of installed RPATHs

# Every target that uses torch takes these flags and no other, or the header could not be shared.
add_library(shoal_warnings INTERFACE)
target_compile_options(shoal_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror>)
# GCC 12 sees overlapping copies in every "text" + std::string at -O2 (its bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(shoal_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

add_library(shoal_base INTERFACE)
target_compile_features(shoal_base INTERFACE cxx_std_20)
target_include_directories(shoal_base INTERFACE "${PROJECT_SOURCE_DIR}")
# -fPIC also in programs, where CMake would pass -fPIE: flags must equal the header's.
# Contraction off: the same bits on every machine; a file that wants fma calls std::fma.
# Without errno std::sqrt is one instruction and may be vectorised; its results do not change.
target_compile_options(shoal_base INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-fPIC;-ffp-contract=off;-fno-math-errno;-fdiagnostics-color=auto>)
if(SHOAL_SANITIZE)
  set(sanitize -fsanitize=address,undefined -fno-sanitize=vptr -fno-omit-frame-pointer)
  target_compile_options(shoal_base INTERFACE ${sanitize})
  target_link_options(shoal_base INTERFACE ${sanitize})
endif()
target_link_libraries(shoal_base INTERFACE shoal_warnings yaml-cpp fmt::fmt OpenSSL::Crypto
                      JPEG::JPEG PNG::PNG "${SHOAL_PCRE2_LIBRARY}" Threads::Threads)
target_include_directories(shoal_base SYSTEM INTERFACE
  ${SHOAL_PCRE2_INCLUDE} ${SHOAL_NLOHMANN_INCLUDE} ${SHOAL_CLI11_INCLUDE})

# The wheel carries an fmt of its own beside torch's headers, of another version than the library
# that spdlog and we link: ours has to be found first.
find_path(SHOAL_FMT_INCLUDE fmt/format.h NO_CMAKE_PATH REQUIRED)
mark_as_advanced(SHOAL_FMT_INCLUDE)
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/first_include")
file(CREATE_LINK "${SHOAL_FMT_INCLUDE}/fmt" "${CMAKE_BINARY_DIR}/first_include/fmt" SYMBOLIC)
target_include_directories(shoal_base SYSTEM BEFORE INTERFACE "${CMAKE_BINARY_DIR}/first_include")

add_library(shoal_torch INTERFACE)
# at::parallel_for is serial in files compiled without -fopenmp.
target_compile_options(shoal_torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
target_compile_definitions(shoal_torch INTERFACE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
target_link_libraries(shoal_torch INTERFACE shoal_base LibTorch::cpu LibTorch::c10 MPI::MPI_C
                      spdlog::spdlog)

# The one precompiled header: narrow, because torch/torch.h would triple the time of every file.
file(WRITE "${CMAKE_BINARY_DIR}/pch_owner.cpp" "")
add_library(shoal_pch OBJECT "${CMAKE_BINARY_DIR}/pch_owner.cpp")
target_link_libraries(shoal_pch PRIVATE shoal_torch)
target_precompile_headers(shoal_pch PRIVATE
  <torch/types.h> <torch/nn/module.h> <torch/nn/pimpl.h>
  <torch/csrc/autograd/custom_function.h>
  <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory> <optional> <stdexcept>
  <string> <string_view> <tuple> <utility> <vector>)

# Flags and header of a target whose sources use torch. Each file instantiates again the templates
# that inline functions of torch's headers use: 4 s, with the precompiled header too. So five files
# are compiled as one, and names in their anonymous namespaces must differ (tests/unity_names.py).
# ALONE: one by one.
function(shoal_use_torch target)
  target_link_libraries(${target} PRIVATE shoal_torch)
  target_precompile_headers(${target} REUSE_FROM shoal_pch)
  if(NOT "ALONE" IN_LIST ARGN)
    set_target_properties(${target} PROPERTIES UNITY_BUILD "${SHOAL_UNITY}"
      UNITY_BUILD_BATCH_SIZE 5)
  endif()
endfunction()

# For code that no training waits for: a quarter less to compile.
function(shoal_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
endfunction()

# The sources below a folder, less the plug-in's, the parsers' and the program's.
function(shoal_sources folder out)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}"
       "${PROJECT_SOURCE_DIR}/${folder}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "_cuda\\.cpp$")
  list(REMOVE_ITEM sources launch/main.cpp launch/subcommands.cpp launch/subcommand_options.cpp
       launch/describe_commands.cpp ${SHOAL_PARSER_SOURCES})
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

function(shoal_add_parsers)
  add_library(shoal_parsers OBJECT ${SHOAL_PARSER_SOURCES})
  target_link_libraries(shoal_parsers PUBLIC shoal_base)
endfunction()

function(shoal_add_folder folder)
  shoal_sources(${folder} sources)
  if(sources)
    add_library(shoal_${folder} OBJECT ${sources})
    # Their `#pragma GCC optimize` would hold for files behind them, too.
    set(alone ${sources})
    list(FILTER alone INCLUDE REGEX "_cpu\\.cpp$")
    if(alone)
      set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
    shoal_use_torch(shoal_${folder})
    if(folder STREQUAL "launch")
      shoal_compile_quickly(shoal_launch)
    endif()
  endif()
endfunction()

# Objects, not static libraries: a linker drops the objects of self-registering classes.
function(shoal_add_library)
  add_library(shoal_lib SHARED $<TARGET_OBJECTS:shoal_parsers> $<TARGET_OBJECTS:shoal_build_info>)
  add_library(shoal::shoal ALIAS shoal_lib)
  set_target_properties(shoal_lib PROPERTIES OUTPUT_NAME shoal EXPORT_NAME shoal
    INSTALL_RPATH "$ORIGIN;$ORIGIN/shoal;${LibTorch_LIB_DIR}")
  target_compile_features(shoal_lib PUBLIC cxx_std_20)
  foreach(folder IN ITEMS runtime parallel moe sparse models launch)
    if(TARGET shoal_${folder})
      target_sources(shoal_lib PRIVATE $<TARGET_OBJECTS:shoal_${folder}>)
    endif()
  endforeach()
  # Installed headers need LibTorch's; our warnings and flags are not for those who include them.
  target_link_libraries(shoal_lib PUBLIC $<BUILD_INTERFACE:shoal_torch>
                        $<INSTALL_INTERFACE:LibTorch::cpu> $<INSTALL_INTERFACE:LibTorch::c10>)
endfunction()

function(shoal_add_program)
  if(EXISTS "${PROJECT_SOURCE_DIR}/launch/main.cpp")
    add_executable(shoal launch/main.cpp launch/subcommands.cpp launch/subcommand_options.cpp
                   launch/describe_commands.cpp)
    shoal_use_torch(shoal)
    shoal_compile_quickly(shoal)
    target_link_libraries(shoal PRIVATE shoal_lib)
    set_target_properties(shoal PROPERTIES
      INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/shoal;${LibTorch_LIB_DIR}")
  endif()
endfunction()

# What a user runs, without the tests.
function(shoal_add_program_target)
  add_custom_target(program)
  foreach(target IN ITEMS shoal shoal_cuda)
    if(TARGET ${target})
      add_dependencies(program ${target})
    endif()
  endforeach()
endfunction()
