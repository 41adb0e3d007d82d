#include "pjrt/ffi.h"

#include "pjrt/api.h"

namespace mt::pjrt {
namespace {

// The FFI extension of PJRT plugins from version 0.106 on; pjrt_c_api.h doesn't declare it.
struct RegisterHandlerArgs {
  size_t struct_size;
  const char* target_name;
  size_t target_name_size;
  void* handler;
  const char* platform_name;
  size_t platform_name_size;
  int traits;
};
struct FfiExtension {
  PJRT_Extension_Base base;
  void* type_register;
  void* user_data_add;
  PJRT_Error* (*register_handler)(RegisterHandlerArgs*);
};

// Before this minor version the arguments had one field more.
constexpr int kFirstMinorVersion = 106;

const FfiExtension* find_extension(const PJRT_Api& api) {
  if (api.pjrt_api_version.minor_version < kFirstMinorVersion) return nullptr;
  for (const PJRT_Extension_Base* e = api.extension_start; e != nullptr; e = e->next) {
    if (e->type != PJRT_Extension_Type_FFI || e->struct_size < sizeof(FfiExtension)) continue;
    const auto* ffi = reinterpret_cast<const FfiExtension*>(e);
    if (ffi->register_handler != nullptr) return ffi;
  }
  return nullptr;
}

}  // namespace

bool can_register_ffi_handlers(const Client& client) {
  return find_extension(client.api()) != nullptr;
}

void register_ffi_handler(const Client& client, std::string_view target, std::string_view platform,
                          void* handler) {
  const FfiExtension* ffi = find_extension(client.api());
  if (ffi == nullptr) {
    throw fail(ErrorKind::kDevice,
               "{}: this PJRT plugin (API {}) has no FFI extension as of API 0.{}",
               client.plugin().path(), client.plugin().api_version(), kFirstMinorVersion);
  }
  RegisterHandlerArgs args{sizeof(RegisterHandlerArgs),
                           target.data(),
                           target.size(),
                           handler,
                           platform.data(),
                           platform.size(),
                           0};
  if (PJRT_Error* error = ffi->register_handler(&args)) {
    throw take_error(client.api(), error, fmt::format("registering the FFI handler {}", target));
  }
}

}  // namespace mt::pjrt
