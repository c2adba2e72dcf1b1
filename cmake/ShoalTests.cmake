# tests/<folder>/**/*_test.cpp make the program tests_<folder>; its CTest entries come from the
# names of its suites (see cmake/list_tests.cmake). Those of GPUs are objects, which are in
# tests_gpu_emulated, too.
include(CTest)
include(GoogleTest)

set(SHOAL_MPI_SCRIPT "${PROJECT_SOURCE_DIR}/tests/support/mpi.sh")

# One CTest entry per label, found by asking the program for its suites after each build; tests whose
# names follow the program's are left out.
function(shoal_register program)
  set(file "${CMAKE_BINARY_DIR}/ctest/${program}.cmake")
  list(JOIN ARGN ":" except)
  add_custom_command(TARGET ${program} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -DNAME=${program} -DPROGRAM=$<TARGET_FILE:${program}>
            -DOUTPUT=${file} -DSCRATCH=${CMAKE_BINARY_DIR}/scratch -DMPI_SCRIPT=${SHOAL_MPI_SCRIPT}
            -DEXCEPT=${except}
            -P ${PROJECT_SOURCE_DIR}/cmake/list_tests.cmake
    BYPRODUCTS ${file} VERBATIM)
  set(guard "${CMAKE_BINARY_DIR}/ctest/${program}_guard.cmake")
  file(WRITE "${guard}" "if(EXISTS \"${file}\")\n  include(\"${file}\")\nelse()\n"
       "  add_test(${program} ${program}_NOT_BUILT)\nendif()\n")
  set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY TEST_INCLUDE_FILES "${guard}")
endfunction()

file(GLOB support CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/support/*.cpp")
set(mpi_main "${PROJECT_SOURCE_DIR}/tests/support/mpi_main.cpp")
list(REMOVE_ITEM support "${mpi_main}")
list(FILTER support EXCLUDE REGEX "_(program|shim|cuda)\\.cpp$")
# Alone, for GCC's -Wsubobject-linkage: the communicator's type, which NCCL names, holds one of the file's.
set_source_files_properties("${PROJECT_SOURCE_DIR}/tests/support/fake_nccl.cpp"
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
if(support)
  add_library(tests_support OBJECT ${support})
  shoal_use_torch(tests_support)
  shoal_compile_quickly(tests_support)
endif()

if(TARGET shoal_cuda)
  add_library(tests_gpu_probe MODULE "${PROJECT_SOURCE_DIR}/tests/support/gpu_probe_cuda.cpp")
  shoal_use_torch(tests_gpu_probe)
  target_include_directories(tests_gpu_probe SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(tests_gpu_probe PRIVATE LibTorch::cuda LibTorch::c10_cuda CUDA::cudart)
  set_target_properties(tests_gpu_probe PROPERTIES
    PREFIX lib BUILD_RPATH "${LibTorch_LIB_DIR};${CUDAToolkit_LIBRARY_DIR}")
endif()

function(shoal_add_tests folder main)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${folder}/*_test.cpp")
  if(NOT sources)
    return()
  endif()
  list(APPEND sources ${ARGN})
  set(program tests_${folder})
  set(gpu_sources ${sources})
  list(FILTER gpu_sources INCLUDE REGEX "_gpu_test\\.cpp$")
  # NCCL moves data between real devices only.
  list(FILTER gpu_sources EXCLUDE REGEX "/nccl_[^/]*$")
  if(gpu_sources)
    list(REMOVE_ITEM sources ${gpu_sources})
    add_library(tests_gpu_${folder} OBJECT ${gpu_sources})
    shoal_use_torch(tests_gpu_${folder})
    shoal_compile_quickly(tests_gpu_${folder})
    list(APPEND sources $<TARGET_OBJECTS:tests_gpu_${folder}>)
  endif()
  add_executable(${program} ${sources})
  shoal_use_torch(${program})
  shoal_compile_quickly(${program})
  target_link_libraries(${program} PRIVATE shoal_process GTest::gmock GTest::gtest)
  if(main)
    target_sources(${program} PRIVATE "${main}")
  else()
    target_link_libraries(${program} PRIVATE GTest::gtest_main)
  endif()
  if(TARGET tests_support)
    target_sources(${program} PRIVATE $<TARGET_OBJECTS:tests_support>)
  endif()
  if(TARGET shoal_cuda)
    add_dependencies(${program} shoal_cuda tests_gpu_probe)
    target_compile_definitions(${program} PRIVATE SHOAL_TESTS_HAVE_CUDA_PLUGIN)
  endif()
  shoal_register(${program})
endfunction()

foreach(folder IN ITEMS runtime parallel moe sparse models launch)
  shoal_add_tests(${folder} "")
endforeach()
# Classes that a test adds, each in a file of its own.
file(GLOB members CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/members/*_member.cpp")
shoal_add_tests(members "" ${members})
if(EXISTS "${mpi_main}")
  shoal_add_tests(mpi "${mpi_main}")
endif()

include(ShoalEmulatedGpu)

# The parsers alone, without torch: plain, and under sanitizers.
file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/parsers/*_test.cpp")
if(sources)
  # The fuzzers' entry points under names of their own, for corpus_test.cpp.
  file(GLOB fuzzers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/parsers/fuzz_*.cpp")
  foreach(fuzzer IN LISTS fuzzers)
    get_filename_component(name "${fuzzer}" NAME_WE)
    set_source_files_properties("${fuzzer}" PROPERTIES
      COMPILE_DEFINITIONS LLVMFuzzerTestOneInput=${name})
  endforeach()
  set_source_files_properties("${PROJECT_SOURCE_DIR}/tests/parsers/corpus_test.cpp" PROPERTIES
    COMPILE_DEFINITIONS SHOAL_CORPORA="${PROJECT_SOURCE_DIR}/tests/parsers")
  list(APPEND sources ${fuzzers})
  add_executable(tests_parsers ${sources})
  target_link_libraries(tests_parsers PRIVATE shoal_parsers shoal_parsers_loops GTest::gmock GTest::gtest_main)
  target_precompile_headers(tests_parsers PRIVATE <gmock/gmock.h>)
  shoal_compile_as_one(tests_parsers 12)
  shoal_compile_quickly(tests_parsers)
  shoal_register(tests_parsers)
  if(SHOAL_SANITIZE_PARSERS AND NOT SHOAL_SANITIZE)
    add_executable(tests_parsers_sanitized ${sources} ${SHOAL_PARSER_SOURCES})
    target_link_libraries(tests_parsers_sanitized PRIVATE shoal_base GTest::gmock
                          GTest::gtest_main)
    set(flags -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_precompile_headers(tests_parsers_sanitized PRIVATE <gmock/gmock.h>)
    shoal_compile_as_one(tests_parsers_sanitized 12)
    shoal_compile_quickly(tests_parsers_sanitized)
    target_compile_options(tests_parsers_sanitized PRIVATE ${flags})
    target_link_options(tests_parsers_sanitized PRIVATE ${flags})
    shoal_register(tests_parsers_sanitized)
  endif()
endif()

# In place of the driver's library that describes GPUs.
add_library(nvml_shim MODULE tests/support/nvml_shim.cpp)
target_link_libraries(nvml_shim PRIVATE shoal_base)
add_dependencies(tests_launch nvml_shim)

# What the scripts below drive: a torch-free program, and a library to preload into it.
add_executable(save_program tests/support/save_program.cpp)
target_link_libraries(save_program PRIVATE shoal_parsers shoal_parsers_loops)
add_library(fault_shim MODULE tests/support/fault_shim.cpp)
target_link_libraries(fault_shim PRIVATE shoal_base ${CMAKE_DL_LIBS})

# Answers command lines of the scripts in tests/cli, which look for it beside the program.
add_executable(answers tests/support/answers_program.cpp $<TARGET_OBJECTS:shoal_subcommands>)
shoal_use_torch(answers)
shoal_compile_quickly(answers)
target_link_libraries(answers PRIVATE shoal_process)

# What a checkpoint's model computes, for comparisons with other programs.
add_executable(model_outputs tests/support/model_outputs_program.cpp)
shoal_use_torch(model_outputs)
shoal_compile_quickly(model_outputs)
target_link_libraries(model_outputs PRIVATE shoal_lib)

# Operations of image transforms, for comparisons with Pillow.
add_executable(image_operations tests/support/image_operations_program.cpp)
shoal_use_torch(image_operations)
shoal_compile_quickly(image_operations)
target_link_libraries(image_operations PRIVATE shoal_lib)

# Comparisons with Python's programs, where a Python has them: the one that launch/setup --peers makes, or
# python3.
set(SHOAL_PEER_PYTHON "" CACHE STRING "Python for the label peer; empty: that of launch/setup --peers, or python3")
set(peer_python "${SHOAL_PEER_PYTHON}")
if(NOT peer_python)
  set(user_cache "$ENV{XDG_CACHE_HOME}")
  if(NOT user_cache)
    set(user_cache "$ENV{HOME}/.cache")
  endif()
  file(GLOB peer_python "${user_cache}/shoal/peers-${LibTorch_VERSION}*/contents")
  string(REGEX REPLACE "/contents.*" "/bin/python" peer_python "${peer_python}")
endif()
if(NOT peer_python)
  set(peer_python python3)
endif()
# peer_has(OUT MODULE...): OUT is true if that Python has all of the modules.
function(peer_has out)
  execute_process(
    COMMAND "${peer_python}" -c
            "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))" ${ARGN}
    RESULT_VARIABLE lacks OUTPUT_QUIET ERROR_QUIET)
  set(${out} FALSE PARENT_SCOPE)
  if(lacks STREQUAL "0")
    set(${out} TRUE PARENT_SCOPE)
  endif()
endfunction()
# peer_test(NAME SECONDS COMMAND...): a test of label peer, its script run by that Python.
function(peer_test name seconds)
  add_test(NAME peer_${name} COMMAND ${ARGN})
  set_tests_properties(peer_${name} PROPERTIES LABELS peer TIMEOUT ${seconds})
endfunction()
set(peers "${PROJECT_SOURCE_DIR}/benchmarks/peers")
set(peer_scratch "${CMAKE_BINARY_DIR}/scratch/peer_")

set(SHOAL_TEST_PEERS "transformers and timm of ${peer_python}")
peer_has(has_transformers torch safetensors transformers timm)
if(has_transformers)
  foreach(program IN ITEMS hf timm)
    peer_test(weights_${program} 600 "${peer_python}" "${peers}/weights_peer.py" $<TARGET_FILE:shoal>
              $<TARGET_FILE:model_outputs> "${peer_scratch}weights_${program}" --only ${program})
    set_tests_properties(peer_weights_${program} PROPERTIES PROCESSORS 2)
  endforeach()
else()
  set(SHOAL_TEST_PEERS "none: ${peer_python} lacks torch, safetensors, transformers or timm "
      "(launch/setup --peers, or -DSHOAL_PEER_PYTHON=/path/to/python)")
  string(CONCAT SHOAL_TEST_PEERS ${SHOAL_TEST_PEERS})
endif()
peer_has(has_torch torch safetensors)
if(has_torch)
  peer_test(pickle_to_safetensors 300 "${PROJECT_SOURCE_DIR}/tests/support/in_scratch.sh"
            "${peer_scratch}pickle_to_safetensors"
            "${PROJECT_SOURCE_DIR}/tests/cli/pickle_to_safetensors.sh" "${peer_python}")
  peer_test(weights_adaptive_attention 300 "${peer_python}" "${peers}/weights_peer.py" $<TARGET_FILE:shoal>
            $<TARGET_FILE:model_outputs> "${peer_scratch}weights_adaptive_attention" --only adaptive_attention)
endif()
peer_has(has_reader torch safetensors PIL)
if(has_reader)  # launch/python
  peer_test(reader 900 "${peer_python}" "${peers}/reader_peer.py" $<TARGET_FILE:shoal>
            $<TARGET_FILE:model_outputs> "${peer_scratch}reader")
  set_tests_properties(peer_reader PROPERTIES PROCESSORS 2)
endif()
peer_has(has_pillow PIL)
if(has_pillow)
  peer_test(image_operations 300 "${peer_python}" "${peers}/pillow_operations.py"
            --program $<TARGET_FILE:image_operations>)
endif()
peer_has(has_tokenizers tiktoken tokenizers)
if(SHOAL_BENCHMARKS AND has_tokenizers)  # skipped where the data's variables are not set
  peer_test(tokenizer 300 bash -c [=[
      [ -n "$GPT2_BPE" ] && [ -n "$WIKITEXT2" ] || exit 69
      exec "$0" "$1" --program "$2" --rounds 1 --vocab "$GPT2_BPE/encoder.json" \
        --merges "$GPT2_BPE/vocab.bpe" "$WIKITEXT2/wiki.train.tokens" "$WIKITEXT2/wiki.valid.tokens"]=]
      "${peer_python}" "${peers}/tokenizer_peer.py" "${CMAKE_BINARY_DIR}/benchmarks/tokenizer_bench")
  set_tests_properties(peer_tokenizer PROPERTIES SKIP_RETURN_CODE 69)
endif()
peer_has(has_tensorboard tensorboard)
if(has_tensorboard)
  peer_test(tensorboard 300 "${peer_python}" "${peers}/tensorboard_peer.py" $<TARGET_FILE:shoal>
            "${peer_scratch}tensorboard")
endif()

# two_hosts.sh makes its hosts of namespaces: what it needs for that is tried here.
execute_process(COMMAND "${PROJECT_SOURCE_DIR}/tests/support/in_namespaces.sh"
                        ip link add name near type veth peer name far
                RESULT_VARIABLE no_hosts OUTPUT_QUIET ERROR_VARIABLE why_no_hosts
                ERROR_STRIP_TRAILING_WHITESPACE)
set(SHOAL_TEST_HOSTS "two, of namespaces")
if(no_hosts)
  set(SHOAL_TEST_HOSTS "one: cli_two_hosts is left out, it needs ip (apt-get install iproute2) and "
      "root or user namespaces (${why_no_hosts})")
  string(CONCAT SHOAL_TEST_HOSTS ${SHOAL_TEST_HOSTS})
endif()

# Scripts in tests/cli but common.sh, which they source: one entry each, the program as $1, a scratch
# folder as cwd. A name that ends in _imagenet_data.sh: label data, and only where IMAGENET_SAMPLE
# names a folder. They wait more than they compute, so that each counts as one core.
file(GLOB scripts CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/cli/*.sh")
list(REMOVE_ITEM scripts "${PROJECT_SOURCE_DIR}/tests/cli/common.sh"
     "${PROJECT_SOURCE_DIR}/tests/cli/pickle_to_safetensors.sh")
set(text "")
foreach(script IN LISTS scripts)
  execute_process(COMMAND test -x "${script}" RESULT_VARIABLE not_executable)
  if(not_executable)
    message(FATAL_ERROR "${script} is a test but not executable: chmod +x")
  endif()
  get_filename_component(name "${script}" NAME_WE)
  if((name STREQUAL "two_hosts" AND no_hosts) OR
     (name STREQUAL "benchmark_peers" AND NOT SHOAL_BENCHMARKS))
    continue()
  endif()
  set(label cli)
  set(timeout 300)
  if(name MATCHES "_imagenet_data$")
    set(label data)
    set(timeout 600)
    string(APPEND text "if(NOT \"\$ENV{IMAGENET_SAMPLE}\" STREQUAL \"\")\n")
  endif()
  string(APPEND text
    "add_test(cli_${name} \"${PROJECT_SOURCE_DIR}/tests/support/in_scratch.sh\" "
    "\"${CMAKE_BINARY_DIR}/scratch/cli_${name}\" \"${script}\" \"${CMAKE_BINARY_DIR}/shoal\")\n"
    "set_tests_properties(cli_${name} PROPERTIES LABELS ${label} TIMEOUT ${timeout} "
    "PROCESSORS 1 ENVIRONMENT OMP_NUM_THREADS=1)\n")
  if(label STREQUAL "data")
    string(APPEND text "endif()\n")
  endif()
endforeach()
file(WRITE "${CMAKE_BINARY_DIR}/ctest/cli.cmake" "${text}")
set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY
             TEST_INCLUDE_FILES "${CMAKE_BINARY_DIR}/ctest/cli.cmake")

# Minutes, a gigabyte, root, debootstrap and network: only where asked for.
option(SHOAL_TEST_PACKAGES "Add tests of packages and of the GPU bundle on a fresh Debian, label package" OFF)
if(SHOAL_TEST_PACKAGES)
  set(packages fresh_debian wheel)
  if(TARGET shoal_cuda AND SHOAL_BENCHMARKS)
    list(APPEND packages gpu_bundle)  # CIFAR10 and WIKITEXT2 name its data
  endif()
  foreach(package IN LISTS packages)
    add_test(NAME package_${package}
      COMMAND "${PROJECT_SOURCE_DIR}/tests/support/in_scratch.sh"
              "${CMAKE_BINARY_DIR}/scratch/package_${package}"
              "${PROJECT_SOURCE_DIR}/tests/packages/${package}.sh" "${CMAKE_BINARY_DIR}")
    set_tests_properties(package_${package} PROPERTIES LABELS package TIMEOUT 1800 PROCESSORS 2)
  endforeach()
endif()

# Pages as a browser shows them.
find_program(SHOAL_CHROMIUM NAMES chromium chromium-browser google-chrome)
mark_as_advanced(SHOAL_CHROMIUM)
if(SHOAL_CHROMIUM)
  set(SHOAL_TEST_BROWSER "${SHOAL_CHROMIUM}")
  add_test(NAME browser_report
    COMMAND "${PROJECT_SOURCE_DIR}/tests/support/in_scratch.sh"
            "${CMAKE_BINARY_DIR}/scratch/browser_report"
            "${PROJECT_SOURCE_DIR}/tests/browser/report.py" "${SHOAL_CHROMIUM}"
            $<TARGET_FILE:shoal>)
  set_tests_properties(browser_report
    PROPERTIES LABELS browser TIMEOUT 900 PROCESSORS 2 ENVIRONMENT OMP_NUM_THREADS=1)
else()
  set(SHOAL_TEST_BROWSER "none: the tests of label browser are left out (apt-get install chromium)")
endif()

find_program(SHOAL_MKDOCS mkdocs)
mark_as_advanced(SHOAL_MKDOCS)
if(SHOAL_MKDOCS)
  add_test(NAME site COMMAND "${PROJECT_SOURCE_DIR}/launch/site" "${CMAKE_BINARY_DIR}/scratch/site")
  set_tests_properties(site PROPERTIES LABELS unit TIMEOUT 120)
endif()

add_test(NAME lint COMMAND "${PROJECT_SOURCE_DIR}/tests/lint.py" "${PROJECT_SOURCE_DIR}")
add_test(NAME lint_test COMMAND "${PROJECT_SOURCE_DIR}/tests/lint_test.py")
add_test(NAME documents_test COMMAND "${PROJECT_SOURCE_DIR}/tests/documents_test.py")
add_test(NAME machine_code_test COMMAND "${PROJECT_SOURCE_DIR}/tests/machine_code_test.py")
add_test(NAME gpu_rows_test COMMAND "${PROJECT_SOURCE_DIR}/tests/gpu_rows_test.py")
set_tests_properties(lint lint_test documents_test machine_code_test PROPERTIES LABELS unit TIMEOUT 120)
set_tests_properties(gpu_rows_test PROPERTIES LABELS unit TIMEOUT 300)
# Skipped without the plug-in, and without cuobjdump and nvdisasm.
set(plugin none)
if(TARGET shoal_cuda)
  set(plugin $<TARGET_FILE:shoal_cuda>)
endif()
add_test(NAME machine_code COMMAND "${PROJECT_SOURCE_DIR}/tests/machine_code.py" ${plugin})
set_tests_properties(machine_code PROPERTIES LABELS unit TIMEOUT 120 SKIP_RETURN_CODE 69)
add_test(NAME time_limits COMMAND "${PROJECT_SOURCE_DIR}/tests/time_limits.py" "${CMAKE_BINARY_DIR}")
set_tests_properties(time_limits PROPERTIES LABELS unit TIMEOUT 120)
if(SHOAL_UNITY)
  add_test(NAME unity_names COMMAND "${PROJECT_SOURCE_DIR}/tests/unity_names.py" "${CMAKE_BINARY_DIR}")
  set_tests_properties(unity_names PROPERTIES LABELS unit TIMEOUT 120)
endif()

# Limits by what entries took. Last of the included files, so that it changes what the others add.
set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             "${PROJECT_SOURCE_DIR}/tests/times.txt")
file(STRINGS "${PROJECT_SOURCE_DIR}/tests/times.txt" times REGEX "^[^#]")
set(text "")
foreach(time IN LISTS times)
  string(REGEX MATCH "^([^ ]+) ([0-9]+)$" matched "${time}")
  if(NOT matched)
    message(FATAL_ERROR "tests/times.txt: '${time}', expected an entry's name and whole seconds")
  endif()
  set(name "${CMAKE_MATCH_1}")
  math(EXPR limit "6 * ${CMAKE_MATCH_2}")
  if(limit LESS 300)
    set(limit 300)
  endif()
  if(TEST ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${limit})
  else()
    string(APPEND text "set_tests_properties(${name} PROPERTIES TIMEOUT ${limit})\n")
  endif()
endforeach()
file(WRITE "${CMAKE_BINARY_DIR}/ctest/limits.cmake" "${text}")
set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY
             TEST_INCLUDE_FILES "${CMAKE_BINARY_DIR}/ctest/limits.cmake")
