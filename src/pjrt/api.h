// The one gate to the PJRT C API: fills struct_size, refuses what the plugin lacks, and turns a
// PJRT_Error into an mt::Error. Included by this room's .cc files only.
#pragma once

#include <pjrt_c_api.h>

#include <cstddef>
#include <exception>
#include <string_view>

#include "base/error.h"

namespace mt::pjrt {

// A C API function's name and the size of its arguments as this header knows them (without the
// padding at the end, where a later version may have put a field).
template <typename Args>
struct CallTraits;

#define MT_PJRT_CALL(function)                                   \
  template <>                                                    \
  struct CallTraits<function##_Args> {                           \
    static constexpr const char* kName = #function;              \
    static constexpr size_t kSize = function##_Args_STRUCT_SIZE; \
    static constexpr auto kFunction = &PJRT_Api::function;       \
  }
MT_PJRT_CALL(PJRT_Plugin_Initialize);
MT_PJRT_CALL(PJRT_Event_Destroy);
MT_PJRT_CALL(PJRT_Event_IsReady);
MT_PJRT_CALL(PJRT_Event_Await);
MT_PJRT_CALL(PJRT_Event_OnReady);
MT_PJRT_CALL(PJRT_Client_Create);
MT_PJRT_CALL(PJRT_Client_Destroy);
MT_PJRT_CALL(PJRT_Client_PlatformName);
MT_PJRT_CALL(PJRT_Client_PlatformVersion);
MT_PJRT_CALL(PJRT_Client_AddressableDevices);
MT_PJRT_CALL(PJRT_Client_Compile);
MT_PJRT_CALL(PJRT_Client_BufferFromHostBuffer);
MT_PJRT_CALL(PJRT_Device_GetDescription);
MT_PJRT_CALL(PJRT_Device_MemoryStats);
MT_PJRT_CALL(PJRT_DeviceDescription_Id);
MT_PJRT_CALL(PJRT_DeviceDescription_Kind);
MT_PJRT_CALL(PJRT_DeviceDescription_ToString);
MT_PJRT_CALL(PJRT_Executable_Destroy);
MT_PJRT_CALL(PJRT_Executable_NumPartitions);
MT_PJRT_CALL(PJRT_Executable_NumReplicas);
MT_PJRT_CALL(PJRT_Executable_NumOutputs);
MT_PJRT_CALL(PJRT_Executable_GetCostAnalysis);
MT_PJRT_CALL(PJRT_Executable_GetCompiledMemoryStats);
MT_PJRT_CALL(PJRT_Executable_OptimizedProgram);
MT_PJRT_CALL(PJRT_Executable_Serialize);
MT_PJRT_CALL(PJRT_Executable_DeserializeAndLoad);
MT_PJRT_CALL(PJRT_Executable_Fingerprint);
MT_PJRT_CALL(PJRT_LoadedExecutable_Destroy);
MT_PJRT_CALL(PJRT_LoadedExecutable_GetExecutable);
MT_PJRT_CALL(PJRT_LoadedExecutable_Execute);
MT_PJRT_CALL(PJRT_TopologyDescription_Create);
MT_PJRT_CALL(PJRT_TopologyDescription_Destroy);
MT_PJRT_CALL(PJRT_TopologyDescription_PlatformName);
MT_PJRT_CALL(PJRT_TopologyDescription_GetDeviceDescriptions);
MT_PJRT_CALL(PJRT_Compile);
MT_PJRT_CALL(PJRT_Buffer_Destroy);
MT_PJRT_CALL(PJRT_Buffer_ElementType);
MT_PJRT_CALL(PJRT_Buffer_Dimensions);
MT_PJRT_CALL(PJRT_Buffer_OnDeviceSizeInBytes);
MT_PJRT_CALL(PJRT_Buffer_ReadyEvent);
MT_PJRT_CALL(PJRT_Buffer_ToHostBuffer);
#undef MT_PJRT_CALL

// Frees `error` and gives it as an Error: kLimit for RESOURCE_EXHAUSTED, kCancelled for CANCELLED,
// else kDevice. `what` names the call.
Error take_error(const PJRT_Api& api, PJRT_Error* error, std::string_view what);

// Is the function there? (A plugin may be older than our header, or leave a function out.)
template <typename Args>
bool has(const PJRT_Api& api) {
  const auto* field = reinterpret_cast<const char*>(&(api.*CallTraits<Args>::kFunction));
  const auto offset = static_cast<size_t>(field - reinterpret_cast<const char*>(&api));
  return offset + sizeof(void*) <= api.struct_size && api.*CallTraits<Args>::kFunction != nullptr;
}

// Calls it and hands the error, if any, to the caller to free.
template <typename Args>
PJRT_Error* try_call(const PJRT_Api& api, Args& args) {
  using Traits = CallTraits<Args>;
  if (!has<Args>(api)) {
    throw fail(ErrorKind::kDevice, "this PJRT plugin (API {}.{}) has no {}",
               api.pjrt_api_version.major_version, api.pjrt_api_version.minor_version,
               Traits::kName);
  }
  args.struct_size = Traits::kSize;
  return (api.*Traits::kFunction)(&args);
}

template <typename Args>
void call(const PJRT_Api& api, Args& args) {
  if (PJRT_Error* error = try_call(api, args)) {
    throw take_error(api, error, CallTraits<Args>::kName);
  }
}

// For destructors: whatever goes wrong there is not worth ending the process.
template <typename Args>
void call_quietly(const PJRT_Api& api, Args& args) noexcept {
  try {
    call(api, args);
  } catch (const std::exception&) {
  }
}

}  // namespace mt::pjrt
