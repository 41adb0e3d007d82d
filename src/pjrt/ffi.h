// Handlers of XLA's typed FFI: functions of this program that a compiled program calls.
#pragma once

#include <string_view>

#include "pjrt/client.h"

namespace mt::pjrt {

// Does the plugin have the FFI extension with which handlers are registered?
bool can_register_ffi_handlers(const Client& client);

// Makes `handler` (an XLA_FFI_Handler*) what the client's plugin calls for custom calls of the
// typed FFI (api_version 4) to `target`, for every client of the plugin and until the process ends.
// A plugin takes a name only once. Throws kDevice with the plugin's text, or if it has no FFI.
void register_ffi_handler(const Client& client, std::string_view target, std::string_view platform,
                          void* handler);

}  // namespace mt::pjrt
