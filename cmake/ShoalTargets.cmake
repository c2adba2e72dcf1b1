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
# Without collections of garbage a unit takes a tenth less time, and a tenth more memory.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(shoal_base INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-expand=400>)
endif()
if(SHOAL_SANITIZE)
  set(sanitize -fsanitize=address,undefined -fno-sanitize=vptr -fno-omit-frame-pointer)
  # Under ASan, GCC 12 takes members of libstdc++'s std::function for uninitialised.
  target_compile_options(shoal_base INTERFACE ${sanitize} -Wno-maybe-uninitialized)
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

# The one precompiled header. Two of LibTorch's headers are left out of it (precompiled.h says why):
# files here take the places of both, and give the real ones to sources that include them.
foreach(header IN ITEMS torch/library.h torch/serialize/archive.h)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/left_out_header.h.in"
                 "${CMAKE_BINARY_DIR}/first_include/${header}" @ONLY)
endforeach()
file(WRITE "${CMAKE_BINARY_DIR}/pch_owner.cpp" "")
add_library(shoal_pch OBJECT "${CMAKE_BINARY_DIR}/pch_owner.cpp")
target_link_libraries(shoal_pch PRIVATE shoal_torch)
target_precompile_headers(shoal_pch PRIVATE "${PROJECT_SOURCE_DIR}/cmake/precompiled.h")

# Several files are compiled as one, since each unit instantiates again what inline functions of
# headers use: 1.5 s with the precompiled header. Names in their anonymous namespaces must differ
# (tests/unity_names.py). A unit of `batch` files takes at most half a minute to compile.
function(shoal_compile_as_one target batch)
  set_target_properties(${target} PROPERTIES UNITY_BUILD "${SHOAL_UNITY}"
    UNITY_BUILD_BATCH_SIZE ${batch})
endfunction()

# Flags and header of a target whose sources use torch.
function(shoal_use_torch target)
  target_link_libraries(${target} PRIVATE shoal_torch)
  target_precompile_headers(${target} REUSE_FROM shoal_pch)
  shoal_compile_as_one(${target} 10)
endfunction()

# For code that no training waits for: a third less to compile.
function(shoal_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
endfunction()

# The sources below a folder, less the plug-in's, the parsers' and the program's.
function(shoal_sources folder out)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}"
       "${PROJECT_SOURCE_DIR}/${folder}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "_cuda\\.cpp$")
  list(REMOVE_ITEM sources launch/main.cpp launch/command_line/subcommands.cpp launch/command_line/shared_options.cpp
       launch/command_line/describe_commands.cpp launch/command_line/text_commands.cpp ${SHOAL_PROCESS_SOURCES}
       ${SHOAL_PARSER_SOURCES})
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# Loops over numbers, pixels, bytes or tokens; all else mostly calls LibTorch or reads recipes.
set(SHOAL_LOOPS
    "_cpu\\.cpp$|/kernels/|^runtime/(base|data|files|optim|products|random|text)/|^parallel/gradients/"
    "^moe/(exchange|losses|routing)/|^sparse/(grow_rules|patterns|permutations)/")
list(JOIN SHOAL_LOOPS "|" SHOAL_LOOPS)

# Object libraries of `sources`: NAME, compiled quickly, and NAME_loops. `use` gives them flags.
function(shoal_add_objects name use batch)
  set(loops ${ARGN})
  list(FILTER loops INCLUDE REGEX "${SHOAL_LOOPS}")
  set(others ${ARGN})
  list(FILTER others EXCLUDE REGEX "${SHOAL_LOOPS}")
  foreach(source IN LISTS loops)
    # Such a pragma would hold for the files behind, too.
    file(STRINGS "${PROJECT_SOURCE_DIR}/${source}" pragma REGEX "^#pragma GCC optimize")
    if(pragma)
      set_source_files_properties("${source}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  if(loops)
    add_library(${name}_loops OBJECT ${loops})
    cmake_language(CALL ${use} ${name}_loops)
    shoal_compile_as_one(${name}_loops ${batch})
  endif()
  if(others)
    add_library(${name} OBJECT ${others})
    cmake_language(CALL ${use} ${name})
    shoal_compile_as_one(${name} ${batch})
    shoal_compile_quickly(${name})
  endif()
endfunction()

function(shoal_use_base target)
  target_link_libraries(${target} PUBLIC shoal_base)
endfunction()

# Objects, not static libraries: a linker drops the objects of self-registering classes.
function(shoal_add_library)
  add_library(shoal_lib SHARED $<TARGET_OBJECTS:shoal_build_info> $<TARGET_OBJECTS:shoal_page>)
  add_library(shoal::shoal ALIAS shoal_lib)
  set_target_properties(shoal_lib PROPERTIES OUTPUT_NAME shoal EXPORT_NAME shoal
    INSTALL_RPATH "$ORIGIN;$ORIGIN/shoal;${LibTorch_LIB_DIR}")
  target_compile_features(shoal_lib PUBLIC cxx_std_20)
  foreach(part IN ITEMS parsers runtime parallel moe sparse models launch)
    foreach(objects IN ITEMS shoal_${part} shoal_${part}_loops)
      if(TARGET ${objects})
        target_sources(shoal_lib PRIVATE $<TARGET_OBJECTS:${objects}>)
      endif()
    endforeach()
  endforeach()
  # Installed headers need LibTorch's; our warnings and flags are not for those who include them.
  target_link_libraries(shoal_lib PUBLIC $<BUILD_INTERFACE:shoal_torch>
                        $<INSTALL_INTERFACE:LibTorch::cpu> $<INSTALL_INTERFACE:LibTorch::c10>)
endfunction()

# What changes the process that links it: for programs, which call use_process_parts().
function(shoal_add_process_library)
  add_library(shoal_process STATIC ${SHOAL_PROCESS_SOURCES})
  add_library(shoal::process ALIAS shoal_process)
  target_link_libraries(shoal_process PUBLIC shoal_lib)
  target_precompile_headers(shoal_process REUSE_FROM shoal_pch)
  set_target_properties(shoal_process PROPERTIES EXPORT_NAME process)
endfunction()

function(shoal_add_program)
  if(EXISTS "${PROJECT_SOURCE_DIR}/launch/main.cpp")
    add_library(shoal_subcommands OBJECT launch/command_line/subcommands.cpp launch/command_line/shared_options.cpp
                launch/command_line/describe_commands.cpp launch/command_line/text_commands.cpp)
    shoal_use_torch(shoal_subcommands)
    shoal_compile_quickly(shoal_subcommands)
    add_executable(shoal launch/main.cpp $<TARGET_OBJECTS:shoal_subcommands>)
    shoal_use_torch(shoal)
    shoal_compile_quickly(shoal)
    target_link_libraries(shoal PRIVATE shoal_process)
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
