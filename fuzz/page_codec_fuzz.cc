// Any bytes as an encoded page (tests/kernels/codec_bytes.h): decoded or refused, and nothing is
// read or written beyond. Seeds: corpus/page_codec_fuzz.
#include <cstddef>
#include <cstdint>

#include "tests/kernels/codec_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spillway::kernels::decode_any_bytes({data, size});
  return 0;
}
