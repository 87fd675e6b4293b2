# CUDA, where there is a toolkit: SPILLWAY_CUDA_WORKS, and how its sources are compiled. At the top,
# since a language must be enabled above all that use it.
#
# Without a CUDA Toolkit the kernels' objects are left out: their tests, on the emulator, need none.
set(SPILLWAY_CUDA_WORKS OFF)
option(SPILLWAY_CUDA "Compile the CUDA kernels where the toolkit is found" ON)
if(NOT SPILLWAY_CUDA OR SPILLWAY_SANITIZE)
  return()
endif()

include(CheckLanguage)
find_program(SPILLWAY_NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
# What is checked is a project of its own, which the environment alone reaches: so that it is what
# is then used, both get all from there.
if("$ENV{CUDACXX}" STREQUAL "" AND SPILLWAY_NVCC)
  set(ENV{CUDACXX} "${SPILLWAY_NVCC}")
endif()
if("$ENV{CUDAHOSTCXX}" STREQUAL "")
  if(NOT CMAKE_CUDA_HOST_COMPILER)
    set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
  endif()
  set(ENV{CUDAHOSTCXX} "${CMAKE_CUDA_HOST_COMPILER}")
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "$ENV{CUDAARCHS}")
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)  # and PTX of the last, for what comes later
endif()
set(ENV{CUDAARCHS} "${CMAKE_CUDA_ARCHITECTURES}")
if(NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER CACHE)  # none worked before: there may be another toolkit now
  if(NOT "$ENV{CUDACXX}" STREQUAL "")
    check_language(CUDA)
  endif()
endif()
if(NOT CMAKE_CUDA_COMPILER)
  message(STATUS "CUDA: no toolkit that works here, so its kernels are not compiled (looked for "
    "nvcc in CUDACXX, PATH, CUDA_PATH and /usr/local/cuda; found '$ENV{CUDACXX}'; sm_100 takes "
    "12.8; CMakeFiles/CMakeError.log says what failed)")
  return()
endif()
enable_language(CUDA)
set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
message(STATUS "CUDA: kernels for ${CMAKE_CUDA_ARCHITECTURES}, toolkit ${CMAKE_CUDA_COMPILER_VERSION}")

# CMake 3.25 does not know nvcc's flag for C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)

# What links it needs no driver at its start: libcudart_static looks for one when it is asked.
get_filename_component(toolkit "${CMAKE_CUDA_COMPILER}" REALPATH)
get_filename_component(toolkit "${toolkit}/../.." ABSOLUTE)
find_library(SPILLWAY_CUDART_STATIC cudart_static
  HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} "${toolkit}/lib64" "${toolkit}/lib")
if(NOT SPILLWAY_CUDART_STATIC)
  message(STATUS "CUDA: no libcudart_static, so nothing is linked with the device")
endif()
set(SPILLWAY_CUDA_WORKS ON)

# spillway_cuda_objects(NAME SOURCES...): .cu files as nvcc compiles them. Products and sums fuse
# where the source says so alone (gpu.cuh).
function(spillway_cuda_objects name)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE
    -fmad=false --expt-relaxed-constexpr -Xcompiler=-march=x86-64-v2 -Wno-deprecated-gpu-targets)
endfunction()
