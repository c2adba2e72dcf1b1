# -DSHOAL_FUZZ=ON: one libFuzzer program for each tests/parsers/fuzz_*.cpp, with ASan and UBSan.
# Built by clang++ whatever compiler builds the rest; run as
#   mkdir found && build/release/fuzz_recipe -dict=tests/parsers/fuzz_recipe.dict \
#     -max_total_time=60 found tests/parsers/fuzz_recipe.corpus
find_program(SHOAL_CLANGXX clang++ DOC "Compiler of the fuzzers")
if(NOT SHOAL_CLANGXX)
  message(FATAL_ERROR "SHOAL_FUZZ needs clang++. Fix: apt-get install clang.")
endif()

set(fuzz_flags -std=c++20 -g -O1 -fno-omit-frame-pointer -fsanitize=fuzzer,address,undefined
    -fno-sanitize-recover=all)

# An object of `source` in the variable `out`.
function(shoal_fuzz_object source out)
  set(object "${CMAKE_BINARY_DIR}/fuzz/${source}.o")
  get_filename_component(folder "${object}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  add_custom_command(OUTPUT "${object}"
    COMMAND "${SHOAL_CLANGXX}" ${fuzz_flags} -I "${PROJECT_SOURCE_DIR}"
            -I "${SHOAL_NLOHMANN_INCLUDE}" -I "${SHOAL_PCRE2_INCLUDE}" -MD -MF "${object}.d" -MT "${object}"
            -c "${PROJECT_SOURCE_DIR}/${source}" -o "${object}"
    DEPENDS "${PROJECT_SOURCE_DIR}/${source}" DEPFILE "${object}.d" VERBATIM)
  set(${out} "${object}" PARENT_SCOPE)
endfunction()

set(parser_objects)
foreach(source IN LISTS SHOAL_PARSER_SOURCES)
  shoal_fuzz_object("${source}" object)
  list(APPEND parser_objects "${object}")
endforeach()

file(GLOB fuzzers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}"
     "${PROJECT_SOURCE_DIR}/tests/parsers/fuzz_*.cpp")
foreach(fuzzer IN LISTS fuzzers)
  get_filename_component(name "${fuzzer}" NAME_WE)
  shoal_fuzz_object("${fuzzer}" object)
  add_custom_command(OUTPUT "${CMAKE_BINARY_DIR}/${name}"
    COMMAND "${SHOAL_CLANGXX}" ${fuzz_flags} "${object}" ${parser_objects} -lyaml-cpp -lfmt -lcrypto
            -ljpeg -lpng
            "${SHOAL_PCRE2_LIBRARY}"
            -o "${CMAKE_BINARY_DIR}/${name}"
    DEPENDS "${object}" ${parser_objects} VERBATIM)
  add_custom_target(${name}_program ALL DEPENDS "${CMAKE_BINARY_DIR}/${name}")
endforeach()
