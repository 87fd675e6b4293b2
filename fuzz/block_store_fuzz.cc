// A store's file with edits in it (tests/io/edited_store.h): opening it and using it must neither
// fall over nor serve a wrong byte. Seeds: corpus/block_store_fuzz.
#include <cstddef>
#include <cstdint>

#include "runtime/log.h"
#include "tests/io/edited_store.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spillway::configure_log("off");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spillway::io::open_edited_store({data, size});
  return 0;
}
