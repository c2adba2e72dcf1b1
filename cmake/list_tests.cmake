cmake_minimum_required(VERSION 3.25)
# Asks a test program for its suites and writes its CTest entries to OUTPUT, one per label.
#
# The end of a suite's name decides where it belongs:
#   *Ranks  label ranks: thread ranks in one process
#   *Mpi    label mpi: under mpirun, by MPI_SCRIPT, with 1, 2, 3 and 4 ranks
#   *Data   label data: needs a folder named by the environment; only there if it is set.
#           CIFAR10, or by the rest of its name: *WikiText2* WIKITEXT2, *Gpt2Bpe* GPT2_BPE,
#           *ImageNet* IMAGENET_SAMPLE
#   *Gpu    label gpu: needs a GPU; only there if a GPU device file is. tests_gpu_emulated brings
#           its own: label unit
#   *Cli    no entry: a script of tests/cli runs it
#   others  label unit
# Inputs: NAME, PROGRAM, OUTPUT, SCRATCH, MPI_SCRIPT, EXCEPT (tests that are left out).
execute_process(COMMAND "${PROGRAM}" --gtest_list_tests
                OUTPUT_VARIABLE listing ERROR_VARIABLE errors RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${NAME}: cannot list its tests (${status})\n${listing}${errors}")
endif()
string(REPLACE ";" "," listing "${listing}")
string(REPLACE "\n" ";" lines "${listing}")

foreach(line IN LISTS lines)
  # A suite: `Suite.`, `Prefix/Suite.`, `Suite/0.  # TypeParam = ...`; its tests are indented.
  if(NOT line MATCHES "^([A-Za-z0-9_/]+)\\.( +#.*)?$")
    continue()
  endif()
  set(suite "${CMAKE_MATCH_1}")
  string(REGEX REPLACE "/[0-9]+$" "" bare "${suite}")
  if(bare MATCHES "Cli$")
    continue()
  elseif(NAME STREQUAL "tests_mpi" OR bare MATCHES "Mpi$")
    set(group mpi)
  elseif(bare MATCHES "Ranks$")
    set(group ranks)
  elseif(bare MATCHES "Gpu$" AND NOT NAME STREQUAL "tests_gpu_emulated")
    set(group gpu)
  elseif(bare MATCHES "Data$")
    if(bare MATCHES "WikiText2")
      set(group data_WIKITEXT2)
    elseif(bare MATCHES "Gpt2Bpe")
      set(group data_GPT2_BPE)
    elseif(bare MATCHES "ImageNet")
      set(group data_IMAGENET_SAMPLE)
    else()
      set(group data_CIFAR10)
    endif()
  else()
    set(group unit)
  endif()
  list(APPEND groups ${group})
  list(APPEND suites_${group} "${suite}.*")
endforeach()
list(REMOVE_DUPLICATES groups)

set(text "")
macro(add_entry entry label timeout processors environment)
  string(APPEND text "add_test(${entry} ${ARGN})\n"
    "set_tests_properties(${entry} PROPERTIES LABELS ${label} TIMEOUT ${timeout} "
    "PROCESSORS ${processors} WORKING_DIRECTORY \"${SCRATCH}\" ENVIRONMENT \"${environment}\")\n")
endmacro()
file(MAKE_DIRECTORY "${SCRATCH}")

foreach(group IN LISTS groups)
  list(JOIN suites_${group} ":" filter)
  if(EXCEPT)
    string(APPEND filter ":-${EXCEPT}")
  endif()
  set(command "\"${PROGRAM}\" --gtest_brief=1 \"--gtest_filter=${filter}\"")
  if(group STREQUAL "unit")
    # Memory that was never written, or is already freed, holds no zeros: reading it fails a test
    # each time, not once in many.
    add_entry(${NAME} unit 300 1 "OMP_NUM_THREADS=1;MALLOC_PERTURB_=1" ${command})
  elseif(group STREQUAL "ranks")
    add_entry(${NAME}_ranks ranks 600 1 "OMP_NUM_THREADS=1" ${command})
  elseif(group STREQUAL "mpi")
    foreach(size IN ITEMS 1 2 3 4)
      set(cores 2)
      if(size EQUAL 1)
        set(cores 1)
      endif()
      add_entry(${NAME}_mpi_${size} mpi 300 ${cores} "OMP_NUM_THREADS=1"
                "\"${MPI_SCRIPT}\" ${size} ${command}")
    endforeach()
  elseif(group STREQUAL "gpu")
    string(APPEND text "if(EXISTS /dev/nvidiactl)\n")
    add_entry(${NAME}_gpu gpu 600 2 "OMP_NUM_THREADS=2" ${command})
    string(APPEND text "endif()\n")
  else()
    string(REPLACE "data_" "" variable "${group}")
    string(APPEND text "if(NOT \"\$ENV{${variable}}\" STREQUAL \"\")\n")
    add_entry(${NAME}_${group} data 1200 2 "OMP_NUM_THREADS=2" ${command})
    string(APPEND text "endif()\n")
  endif()
endforeach()
file(WRITE "${OUTPUT}" "${text}")
