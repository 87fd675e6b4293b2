# Compiler settings that every target shares.
option(SPILLWAY_BUILD_TESTS "Build the tests" ON)
option(SPILLWAY_BUILD_BENCH "Build the benchmarks" ON)
option(SPILLWAY_BUILD_FUZZ "Build the libFuzzer targets (clang only)" OFF)
set(SPILLWAY_SANITIZE "" CACHE STRING "Value for -fsanitize=, empty for none")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")

find_program(SPILLWAY_CCACHE ccache)
if(SPILLWAY_CCACHE)
  # A precompiled header is only cacheable when ccache may trust its name and clang leaves out
  # time stamps.
  set(launcher "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}"
      CCACHE_NOHASHDIR=1 "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
      "${SPILLWAY_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

# Flags every target compiles with. The baseline is x86-64-v2: faster instruction sets come by
# target attributes on functions and are chosen at run time. Contraction is off because which
# products fuse must not depend on the compiler (the same bits, docs/ARCHITECTURE.md).
add_library(spillway_flags INTERFACE)
target_compile_options(spillway_flags INTERFACE
  -march=x86-64-v2 -ffp-contract=off -fno-math-errno -Wall -Wextra -Wshadow=local
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-shadow>
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Xclang -fno-pch-timestamp>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fcoroutines>)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # gcc spells the local-only variant; clang's plain -Wshadow is what it has.
  target_compile_options(spillway_flags INTERFACE -Wno-unknown-warning-option)
endif()
target_include_directories(spillway_flags INTERFACE "${CMAKE_SOURCE_DIR}")
if(SPILLWAY_SANITIZE)
  target_compile_options(spillway_flags INTERFACE
    -fsanitize=${SPILLWAY_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -O1 -g1)
  target_link_options(spillway_flags INTERFACE -fsanitize=${SPILLWAY_SANITIZE})
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  find_program(SPILLWAY_LLD NAMES ld.lld-19 ld.lld)
  if(SPILLWAY_LLD)
    target_link_options(spillway_flags INTERFACE "--ld-path=${SPILLWAY_LLD}")
  endif()
endif()

# Precompiled headers take about 0.8 s off each file's 2 s. A linked worktree (its .git is a file)
# goes without by default: ccache shares objects between worktrees, and a precompiled header, which
# carries its path, would end that.
if(IS_DIRECTORY "${CMAKE_SOURCE_DIR}/.git" OR NOT SPILLWAY_CCACHE)
  set(precompile_default ON)
else()
  set(precompile_default OFF)
endif()
option(SPILLWAY_PRECOMPILE "Precompile the headers that most files include" ${precompile_default})

# Those below server/ share the header that runtime/ precompiles; server/ has its own.
set(SPILLWAY_SHARES_PRECOMPILED
  spillway_io spillway_kernels spillway_cache spillway_model spillway_scheduler)

# spillway_library(NAME SOURCES... ) declares the one target of a folder.
function(spillway_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC spillway_flags)
  if(SPILLWAY_PRECOMPILE AND name IN_LIST SPILLWAY_SHARES_PRECOMPILED)
    target_precompile_headers(${name} REUSE_FROM spillway_runtime)
  endif()
endfunction()
