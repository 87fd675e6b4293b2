#include "model/gguf_parser.h"

#include <bit>
#include <cstring>
#include <optional>

namespace spillway::model {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

constexpr uint64_t kDimensionMax = uint64_t{1} << 42;
constexpr uint64_t kKeyBytesMax = 65535;  // the specification's limit
constexpr uint64_t kNameBytesMax = 4096;  // of tensors; the format writes at most 64
// What an entry takes at least, to check a count before reserving for it.
constexpr uint64_t kValueBytesMin = 8 + 4 + 1;       // key length, type, one byte
constexpr uint64_t kTensorBytesMin = 8 + 4 + 4 + 8;  // name length, rank, type, offset

// Reads forward. The first failure sticks: later reads give zeros, so a caller checks once.
class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Result<GgufPart> run();

 private:
  uint64_t remaining() const { return bytes_.size() - position_; }
  bool ok() const { return !error_; }
  void fail(ErrorCode code, const std::string& what) {
    if (!error_) error_ = Error{code, name_ + ": " + what};
  }
  void corrupt(const std::string& what) { fail(ErrorCode::kCorrupt, what); }

  std::span<const std::byte> take(uint64_t count, const std::string& field) {
    if (!ok()) return {};
    if (count > remaining()) {
      corrupt("the file ends within " + field + " (byte " + std::to_string(position_) + ", needs " +
              std::to_string(count) + ", has " + std::to_string(remaining()) +
              "); it is truncated or not a GGUF file");
      return {};
    }
    auto result = bytes_.subspan(position_, count);
    position_ += count;
    return result;
  }

  template <class T>
  T read(const std::string& field) {
    T value{};
    auto bytes = take(sizeof(T), field);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  std::string_view read_string(uint64_t bytes_max, const std::string& field) {
    const auto length = read<uint64_t>("the length of " + field);
    if (ok() && length > bytes_max) {
      corrupt(field + " is " + std::to_string(length) + " bytes long; at most " +
              std::to_string(bytes_max) + " are accepted");
    }
    auto bytes = take(ok() ? length : 0, field);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  void read_header();
  GgufValue read_value(uint64_t index);
  void read_payload(GgufValue& value);
  void skip_strings(uint64_t count, const std::string& field);
  GgufTensor read_tensor(uint64_t index);
  void place_tensor(GgufTensor& tensor, uint64_t offset);
  void find_alignment(const GgufPart& part);

  std::span<const std::byte> bytes_;
  const std::string& name_;
  uint64_t position_ = 0;
  uint64_t value_count_ = 0;
  uint64_t tensor_count_ = 0;
  uint64_t alignment_ = 32;
  std::vector<uint64_t> offsets_;  // of the tensors, checked once the index has been read
  std::span<const std::byte> data_;
  std::optional<Error> error_;
};

void Parser::read_header() {
  auto magic = take(4, "the magic number");
  if (ok() && std::memcmp(magic.data(), "GGUF", 4) != 0) {
    fail(ErrorCode::kInvalidArgument, "not a GGUF file (it does not start with \"GGUF\")");
  }
  const auto version = read<uint32_t>("the format version");
  if (ok() && version != 2 && version != 3) {
    const bool swapped = version == 0x02000000u || version == 0x03000000u;
    fail(ErrorCode::kUnsupported,
         swapped ? "a big-endian GGUF file; convert it to little endian"
                 : "GGUF version " + std::to_string(version) + "; 2 and 3 are accepted");
  }
  tensor_count_ = read<uint64_t>("the tensor count");
  value_count_ = read<uint64_t>("the metadata count");
  if (ok() && value_count_ > remaining() / kValueBytesMin) {
    corrupt("the metadata count " + std::to_string(value_count_) +
            " is more than the file can hold");
  }
  if (ok() && tensor_count_ > remaining() / kTensorBytesMin) {
    corrupt("the tensor count " + std::to_string(tensor_count_) +
            " is more than the file can hold");
  }
}

void Parser::skip_strings(uint64_t count, const std::string& field) {
  if (count > remaining() / 8) {
    corrupt(field + " has " + std::to_string(count) + " strings, more than the file can hold");
  }
  // Half a million in a large vocabulary: no message is built unless one is wrong.
  for (uint64_t i = 0; i < count && ok(); ++i) {
    uint64_t length = remaining();
    if (remaining() >= 8) std::memcpy(&length, bytes_.data() + position_, 8);
    if (remaining() < 8 || length > remaining() - 8) {
      corrupt("string " + std::to_string(i) + " of " + field + " runs past the end of the file");
      return;
    }
    position_ += 8 + length;
  }
}

void Parser::read_payload(GgufValue& value) {
  const std::string field = "the value of " + in_quotes(value.key);
  if (value.type == GgufType::kArray) {
    value.element =
        static_cast<GgufType>(read<uint32_t>("the element type of " + in_quotes(value.key)));
    value.count = read<uint64_t>("the element count of " + in_quotes(value.key));
    if (ok() && value.element == GgufType::kArray) {
      fail(ErrorCode::kUnsupported, field + " is an array of arrays; these are not accepted");
    }
  }
  if (!ok()) return;
  const uint64_t begin = position_;
  if (value.element == GgufType::kString) {
    skip_strings(value.count, field);
    value.payload = bytes_.subspan(begin, position_ - begin);
    return;
  }
  const uint64_t width = gguf_type_bytes(value.element);
  if (width == 0) {
    corrupt(field + " has the unknown type " +
            std::to_string(static_cast<uint32_t>(value.element)));
  } else if (value.count > remaining() / width) {
    corrupt(field + " (" + std::to_string(value.count) + " x " +
            std::string(gguf_type_name(value.element)) + ") runs past the end of the file");
  }
  value.payload = take(ok() ? value.count * width : 0, field);
}

GgufValue Parser::read_value(uint64_t index) {
  GgufValue value;
  value.key = read_string(kKeyBytesMax, "key " + std::to_string(index));
  if (ok() && value.key.empty()) corrupt("key " + std::to_string(index) + " is empty");
  value.type = static_cast<GgufType>(read<uint32_t>("the type of " + in_quotes(value.key)));
  value.element = value.type;
  if (ok()) read_payload(value);
  return value;
}

GgufTensor Parser::read_tensor(uint64_t index) {
  GgufTensor tensor;
  const std::string place = "tensor " + std::to_string(index);
  tensor.name = read_string(kNameBytesMax, "the name of " + place);
  if (ok() && tensor.name.empty()) corrupt(place + " has no name");
  if (!ok()) return tensor;
  const std::string field = "tensor " + in_quotes(tensor.name);
  tensor.rank = read<uint32_t>("the rank of " + field);
  if (ok() && (tensor.rank < 1 || tensor.rank > 4)) {
    corrupt(field + " has " + std::to_string(tensor.rank) + " dimensions; 1 to 4 are accepted");
  }
  uint64_t elements = 1;
  for (uint32_t d = 0; d < tensor.rank && ok(); ++d) {
    const auto size = read<uint64_t>("dimension " + std::to_string(d) + " of " + field);
    if (!ok()) break;
    if (size == 0 || size > kDimensionMax || elements > kDimensionMax / size) {
      corrupt(field + ": dimension " + std::to_string(d) + " is " + std::to_string(size) +
              "; each, and all multiplied, must be 1 to 2^42");
    }
    tensor.dims[d] = size;
    elements *= ok() ? size : 1;
  }
  const auto type = read<uint32_t>("the type of " + field);
  const auto offset = read<uint64_t>("the offset of " + field);
  if (!ok()) return tensor;
  const auto known = kernels::tensor_type_from_id(type);
  if (!known) {
    fail(ErrorCode::kUnsupported,
         field + " has type " + kernels::tensor_type_name(type) +
             ", which is not supported; accepted are F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, "
             "Q2_K, Q3_K, Q4_K, Q5_K, Q6_K and IQ4_NL");
    return tensor;
  }
  tensor.type = *known;
  offsets_.push_back(offset);
  return tensor;
}

void Parser::find_alignment(const GgufPart& part) {
  for (const GgufValue& value : part.values) {
    if (value.key != "general.alignment") continue;
    uint32_t alignment = 0;
    if (value.type == GgufType::kU32) std::memcpy(&alignment, value.payload.data(), 4);
    if (!std::has_single_bit(alignment) || alignment < 8) {
      corrupt("general.alignment must be a u32, a power of two and at least 8");
      return;
    }
    alignment_ = alignment;
  }
}

void Parser::place_tensor(GgufTensor& tensor, uint64_t offset) {
  const std::string field = "tensor " + in_quotes(tensor.name);
  const uint64_t block = kernels::block_elements(tensor.type);
  if (tensor.dims[0] % block != 0) {
    corrupt(field + ": a row of " + std::to_string(tensor.dims[0]) + " is not whole blocks of " +
            std::to_string(block));
    return;
  }
  if (offset % alignment_ != 0) {
    corrupt(field + ": offset " + std::to_string(offset) + " is not a multiple of the alignment " +
            std::to_string(alignment_));
    return;
  }
  // At most 2^42 elements of at most 4 bytes: no overflow.
  const uint64_t bytes = tensor.elements() / block * kernels::block_bytes(tensor.type);
  if (offset > data_.size() || bytes > data_.size() - offset) {
    corrupt(field + ": its data (" + std::to_string(bytes) + " bytes at " + std::to_string(offset) +
            ") runs past the end of the file; it is truncated");
    return;
  }
  tensor.data = data_.subspan(offset, bytes);
}

Result<GgufPart> Parser::run() {
  read_header();
  GgufPart part;
  if (ok()) part.values.reserve(value_count_);
  for (uint64_t i = 0; i < value_count_ && ok(); ++i) part.values.push_back(read_value(i));
  if (ok()) find_alignment(part);
  if (ok()) part.tensors.reserve(std::min(tensor_count_, remaining() / kTensorBytesMin));
  for (uint64_t i = 0; i < tensor_count_ && ok(); ++i) part.tensors.push_back(read_tensor(i));
  if (!ok()) return *error_;
  // Data begins at the next multiple of the alignment; a file without tensors may end before it.
  const uint64_t padding = (alignment_ - position_ % alignment_) % alignment_;
  if (padding <= remaining()) data_ = bytes_.subspan(position_ + padding);
  for (size_t i = 0; i < part.tensors.size() && ok(); ++i) {
    place_tensor(part.tensors[i], offsets_[i]);
  }
  if (!ok()) return *error_;
  return part;
}

}  // namespace

size_t gguf_type_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

Result<GgufPart> parse_gguf_part(std::span<const std::byte> bytes, const std::string& name) {
  return Parser(bytes, name).run();
}

}  // namespace spillway::model
