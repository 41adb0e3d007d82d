// The part of XLA's typed FFI (its C interface, version 0.x) that handlers need: what they are
// called with and how they report an error. Layouts and numbers are XLA's and must not be changed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mt::kernels::ffi {

struct Extension {
  size_t struct_size;
  int32_t type;
  Extension* next;
};
constexpr int32_t kMetadataExtension = 1;

struct Version {
  size_t struct_size;
  Extension* extensions;
  int major;
  int minor;
};
constexpr int kMajor = 0;
// The oldest minor version whose structs are as declared here; XLA takes older handlers than
// itself.
constexpr int kMinor = 1;

struct Metadata {
  size_t struct_size;
  Version version;
  uint32_t traits;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct Error;  // XLA's
struct ErrorCreateArgs {
  size_t struct_size;
  Extension* extensions;
  const char* message;
  int32_t code;
};
constexpr int32_t kInvalidArgument = 3;
constexpr int32_t kInternal = 13;

struct Api {  // its first fields
  size_t struct_size;
  Extension* extensions;
  Version version;
  const void* internal_api;
  Error* (*create_error)(ErrorCreateArgs*);
};

// Numbers of xla.PrimitiveType.
enum DataType : int32_t {
  kS8 = 2,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU32 = 8,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBF16 = 16,
};

struct Buffer {
  size_t struct_size;
  Extension* extensions;
  int32_t dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};
constexpr int32_t kBufferArgument = 1;

struct ByteSpan {
  const char* data;
  size_t size;
};
struct Scalar {
  int32_t dtype;
  void* value;
};
constexpr int32_t kScalarAttribute = 3;

struct Values {  // arguments or results
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  int32_t* types;
  void** values;
};
struct Attributes {  // sorted by name
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  int32_t* types;
  ByteSpan** names;
  void** values;
};

constexpr int32_t kExecuteStage = 3;
struct CallFrame {
  size_t struct_size;
  Extension* extensions;
  const Api* api;
  void* context;
  int32_t stage;
  Values arguments;
  Values results;
  Attributes attributes;
};

using Handler = Error*(CallFrame*);

}  // namespace mt::kernels::ffi
