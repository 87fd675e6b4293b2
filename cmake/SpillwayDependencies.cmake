# Everything comes from Debian packages; tools/setup installs them.
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json system)
find_package(spdlog REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(prometheus-cpp REQUIRED COMPONENTS core)
find_package(PkgConfig REQUIRED)
pkg_check_modules(uring REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
