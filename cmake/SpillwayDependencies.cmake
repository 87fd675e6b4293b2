# Everything comes from Debian packages; tools/setup installs them.
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json system)
find_package(spdlog REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(prometheus-cpp REQUIRED COMPONENTS core)
find_package(PkgConfig REQUIRED)
pkg_check_modules(uring REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)

# CUDA is optional; the device code lands in a later release.
find_program(SPILLWAY_NVCC nvcc HINTS /usr/local/cuda/bin)
